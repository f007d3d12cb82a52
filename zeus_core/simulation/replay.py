"""A job's recurrences, replayed through a policy in simulated time.

Every recurrence tries until a trial reaches the target, at most ``max_retries`` times. What a trial teaches is
counted in when it ends. With overlap several recurrences run at once, as many as is known enough for (`pacing`); the
policy then sees the others' trials in flight, as in the store.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from zeus_kfp.zeus_core.hopeless import reference_for
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, forget_costs, observe
from zeus_kfp.zeus_core.pacing import trials_at_once
from zeus_kfp.zeus_core.policies.interface import InFlight, Policy
from zeus_kfp.zeus_core.simulation.results import Replay, SimulatedTrial
from zeus_kfp.zeus_core.simulation.scenario import PLAIN, ChangeKind, Scenario
from zeus_kfp.zeus_core.simulation.truth import JobTruth
from zeus_kfp.zeus_core.simulation.world import Outcome, World
from zeus_kfp.zeus_core.trial import Suggestion, TrialState


def replay(
    job: JobSpec, truth: JobTruth, policy: Policy, recurrences: int, seed: int, scenario: Scenario = PLAIN
) -> Replay:
    """Return what ``recurrences`` recurrences of a job cost under a policy.

    Args:
        job: The job's knobs; its batch sizes must be in the truth.
        truth: What its trials take.
        policy: Chooses every trial's batch size.
        recurrences: How often the job recurs, above 0.
        seed: Seed of the simulated cluster; the policy's is the job's.
        scenario: What the job meets beside its truth.

    Raises:
        InvalidValueError: If the scenario does not fit the job.
        NoBatchSizeLeftError: If the policy has ruled out every batch size.
    """
    scenario.check_sizes(job.batch_sizes)
    world = World(job, truth, scenario, np.random.default_rng(seed))
    return _Run(job, policy, world, recurrences, scenario).finish()


@dataclass(slots=True)
class _Recurrence:
    """One recurrence while it runs."""

    number: int
    tries: int = 0
    spent: float = 0.0


@dataclass(order=True, slots=True)
class _Flying:
    """A trial in flight, ordered by its end."""

    end_s: float
    number: int
    recurrence: _Recurrence = field(compare=False)
    suggestion: Suggestion = field(compare=False)
    outcome: Outcome = field(compare=False)


class _Run:
    """A job's recurrences while they are replayed."""

    def __init__(self, job: JobSpec, policy: Policy, world: World, recurrences: int, scenario: Scenario) -> None:
        self._job, self._policy, self._world = job, policy, world
        self._rng = np.random.default_rng(job.seed)
        self._learnt = Learnt()
        self._recurrences, self._scenario = recurrences, scenario
        self._started = 0
        self._flying: list[_Flying] = []
        self._trials: list[SimulatedTrial] = []

    def finish(self) -> Replay:
        """Run every recurrence to its end."""
        now_s = 0.0
        self._start_more(now_s)
        while self._flying:
            ended = heapq.heappop(self._flying)
            self._land(ended)
            recurrence, now_s = ended.recurrence, ended.end_s
            is_over = ended.outcome.state is TrialState.REACHED or recurrence.tries >= self._job.max_retries
            if not is_over:
                self._launch(recurrence, now_s)
            self._start_more(now_s)
        return Replay(self._policy.name, self._job.seed, self._recurrences, tuple(self._trials), now_s)

    def _start_more(self, now_s: float) -> None:
        """Start as many recurrences as may run at once."""
        at_once = self._scenario.overlap
        if self._scenario.slow_start:
            at_once = min(at_once, trials_at_once(self._learnt))
        while self._started < self._recurrences and len(self._flying) < at_once:
            self._start_next(now_s)

    def _start_next(self, now_s: float) -> None:
        self._started += 1
        change = self._world.change(self._started)
        if change is not None and change.kind is ChangeKind.GPU:
            self._learnt = forget_costs(self._learnt)
        elif change is not None and change.kind is ChangeKind.GPU_FORGETTING_ALL:
            self._learnt = Learnt()
        self._launch(_Recurrence(self._started), now_s)

    def _launch(self, recurrence: _Recurrence, now_s: float) -> None:
        flying = sorted(self._flying, key=lambda one: one.number)
        in_flight = [InFlight(one.suggestion.batch_size, one.suggestion.purpose) for one in flying]
        suggestion = self._policy.suggest(self._job, self._learnt, in_flight, self._rng)
        reference = reference_for(self._job, self._learnt, suggestion.batch_size)
        outcome = self._world.run(suggestion.batch_size, suggestion.cost_threshold, reference)
        recurrence.tries += 1
        number = len(self._trials) + len(self._flying)
        heapq.heappush(self._flying, _Flying(now_s + outcome.time_s, number, recurrence, suggestion, outcome))

    def _land(self, ended: _Flying) -> None:
        """Count in a trial that has ended."""
        outcome, suggestion, recurrence = ended.outcome, ended.suggestion, ended.recurrence
        recurrence.spent += outcome.cost
        seen = Observation(
            suggestion.batch_size,
            suggestion.purpose,
            outcome.state,
            cost=outcome.observed_cost,
            recurrence_cost=recurrence.spent,
            num_epochs=outcome.epochs,
            epoch_cost=outcome.epoch_cost,
            least_epochs=outcome.least_epochs,
            curve=outcome.curve,
        )
        self._learnt = observe(self._job, self._learnt, seen)
        self._trials.append(SimulatedTrial(recurrence.number, suggestion.batch_size, suggestion.purpose, outcome))


def replay_seeds(
    job: JobSpec, truth: JobTruth, policy: Policy, recurrences: int, seeds: Sequence[int], scenario: Scenario = PLAIN
) -> tuple[Replay, ...]:
    """Return a replay for each seed, which seeds the policy and the simulated cluster alike.

    Raises:
        ZeusError: As :func:`replay` does.
    """
    return tuple(replay(replace(job, seed=seed), truth, policy, recurrences, seed, scenario) for seed in seeds)
