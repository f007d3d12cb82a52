"""The `bayes` policy: a model of cost over batch size, and the value of what a trial would teach."""

import math
from collections.abc import Sequence

import numpy as np

from zeus_kfp.zeus_core.errors import NoBatchSizeLeftError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, fitting_sizes, memory_limit
from zeus_kfp.zeus_core.policies.bayes.decision import expected_costs
from zeus_kfp.zeus_core.policies.bayes.model import CostBelief, belief
from zeus_kfp.zeus_core.policies.interface import ArmPosterior, InFlight
from zeus_kfp.zeus_core.pruning import nearest_below
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, finite_or_none

LEAST_HORIZON = 30.0


class BayesPolicy:
    """Gaussian-process beliefs about epochs and their cost, knowledge-gradient decisions."""

    name = "bayes"

    def suggest(
        self, job: JobSpec, learnt: Learnt, in_flight: Sequence[InFlight], rng: np.random.Generator
    ) -> Suggestion:
        sizes = fitting_sizes(job, learnt)
        if not sizes:
            raise NoBatchSizeLeftError("no")
        cheapest = learnt.min_recurrence_cost
        threshold = None if cheapest is None else finite_or_none(job.beta_knob * cheapest)
        default = nearest_below(sizes, job.default_batch_size)
        tried = any(learnt.arm(s).count for s in sizes)
        if not tried and not in_flight:
            return Suggestion(default, Purpose.EXPLORATION, "first", threshold, job.learning_rate_rule.factor(default, job.default_batch_size))
        believed = belief(job, learnt, sizes)
        normal = believed.log_cost
        for t in in_flight:
            if t.batch_size in sizes:
                i = sizes.index(t.batch_size)
                normal = normal.observed(i, normal.mean[i], believed.noise_variance)
        believed = CostBelief(normal, believed.noise_variance, believed.log_most)
        mean_cost = np.exp(normal.mean + normal.variance / 2 + believed.noise_variance / 2)
        reached = [i for i, s in enumerate(sizes) if learnt.arm(s).reached_count]
        if reached:
            retry = min(mean_cost[i] for i in reached)
        else:
            retry = max([float(mean_cost[sizes.index(default)])] + [learnt.arm(s).evidence.unreached_cost or 0 for s in sizes])
        n = sum(learnt.arm(s).reached_count for s in sizes)
        horizon = max(float(job.num_recurrences - n - 1), 0.0) if job.num_recurrences else max(LEAST_HORIZON, n)
        costs = expected_costs(believed, math.inf if threshold is None else math.log(threshold), retry, horizon)
        i = int(np.argmin(costs.total))
        size = sizes[i]
        return Suggestion(size, Purpose.SAMPLING, "x", threshold, job.learning_rate_rule.factor(size, job.default_batch_size))

    def posterior(self, job: JobSpec, learnt: Learnt) -> tuple[ArmPosterior, ...]:
        return ()
