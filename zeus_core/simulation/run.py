"""Policies side by side on a recorded job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.simulation.replay import replay_seeds
from zeus_kfp.zeus_core.simulation.results import Simulation, summarise
from zeus_kfp.zeus_core.simulation.scenario import PLAIN, Scenario
from zeus_kfp.zeus_core.simulation.traces import read_power_trace, read_train_trace
from zeus_kfp.zeus_core.simulation.truth import JobTruth, job_truth
from zeus_kfp.zeus_core.simulation.yardsticks import default, oracle
from zeus_kfp.zeus_core.validation import integer

MAX_RETRIES = 20
"""Tries that a recurrence may spend, as in the published simulator."""


def simulate(
    job: JobSpec,
    truth: JobTruth,
    policies: Sequence[str] = ("zeus", "bayes"),
    *,
    recurrences: int = 50,
    seeds: int = 20,
    scenario: Scenario = PLAIN,
) -> Simulation:
    """Replay a job's recurrences under every policy, with the same seeds.

    Args:
        job: The job's knobs.
        truth: What its trials take, from recorded traces or made up.
        policies: Their names.
        recurrences: How often the job recurs.
        seeds: How many seeds, 0 to ``seeds - 1``.
        scenario: What the job meets beside its truth.

    Raises:
        InvalidValueError: If an argument is out of its range, or no batch size reaches the target.
        NoBatchSizeLeftError: If a policy has ruled out every batch size.
    """
    integer("recurrences", recurrences, at_least=1, at_most=1_000_000)
    integer("seeds", seeds, at_least=1, at_most=100_000)
    if not policies or len(set(policies)) < len(policies):
        raise InvalidValueError(f"policies must name at least one policy and none twice, not {list(policies)}")
    for change in scenario.changes:
        if change.recurrence > recurrences:
            raise InvalidValueError(
                f"the change at recurrence {change.recurrence} comes after the last one, {recurrences}: let it come "
                "earlier, or let the job recur more often"
            )
    scenario.check_sizes(job.batch_sizes)
    best, never = oracle(job, truth, recurrences, scenario), default(job, truth, recurrences, scenario)
    replays = [replay_seeds(job, truth, policy_named(name), recurrences, range(seeds), scenario) for name in policies]
    results = tuple(summarise(one, best, never) for one in replays)
    return Simulation(best, never, tuple(one for several in replays for one in several), results)


def recorded_truth(
    train_trace: str | Path,
    power_trace: str | Path,
    target_metric: float,
    *,
    dataset: str | None = None,
    network: str | None = None,
    optimizer: str | None = None,
) -> JobTruth:
    """Return the truth of a job that two CSV traces recorded.

    Raises:
        InvalidValueError: If a file is no such trace, or does not hold one job that matches.
    """
    train, power = read_train_trace(train_trace), read_power_trace(power_trace)
    return job_truth(train, power, target_metric, dataset=dataset, network=network, optimizer=optimizer)


def recorded_job(truth: JobTruth, *, default_batch_size: int, target_metric: float, **knobs: Any) -> JobSpec:
    """Return the job that has the batch sizes of a recorded truth.

    Unless ``hopeless_stop`` is among the knobs, no trial is stopped as hopeless, as in the published simulator.

    Args:
        truth: Gives the batch sizes, unless ``batch_sizes`` is among the knobs.
        default_batch_size: The size the user trains with.
        target_metric: The metric to reach.
        knobs: Other fields of :class:`JobSpec`.

    Raises:
        InvalidValueError: If a knob is out of its range.
    """
    usual: dict[str, Any] = {
        "job_id": "simulated",
        "max_retries": MAX_RETRIES,
        "batch_sizes": tuple(truth.sizes),
        "higher_is_better": truth.higher_is_better,
        "hopeless_stop": False,
    }
    return JobSpec(default_batch_size=default_batch_size, target_metric=target_metric, **(usual | knobs))
