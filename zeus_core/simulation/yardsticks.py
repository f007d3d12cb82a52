"""The expected costs that policies are measured against."""

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.simulation.results import Yardstick
from zeus_kfp.zeus_core.simulation.scenario import PLAIN, Scenario
from zeus_kfp.zeus_core.simulation.truth import JobTruth


def oracle(job: JobSpec, truth: JobTruth, recurrences: int, scenario: Scenario = PLAIN) -> Yardstick:
    """Return the expected costs of the best fixed batch size and power limit, chosen anew when the truth changes.

    Raises:
        InvalidValueError: If no batch size ever reaches the target.
    """
    costs = [min(one.values()) for one in _mean_costs(job, truth, recurrences, scenario)]
    if costs[0] == float("inf"):
        raise InvalidValueError(
            f"no batch size that fits reaches the target within max_epochs={job.max_epochs}: allow more epochs, or "
            "choose an easier target"
        )
    return Yardstick(tuple(costs))


def default(job: JobSpec, truth: JobTruth, recurrences: int, scenario: Scenario = PLAIN) -> Yardstick:
    """Return the expected costs of the default batch size at its cheapest power limit."""
    size = job.default_batch_size
    return Yardstick(tuple(one.get(size, float("inf")) for one in _mean_costs(job, truth, recurrences, scenario)))


def _mean_costs(job: JobSpec, truth: JobTruth, recurrences: int, scenario: Scenario) -> list[dict[int, float]]:
    """Return, for every recurrence, the mean cost in J of each batch size that fits."""
    truths = {1: truth} | {change.recurrence: change.truth for change in scenario.changes}
    fitting = [size for size in job.batch_sizes if scenario.fits_up_to is None or size <= scenario.fits_up_to]
    costs: list[dict[int, float]] = []
    for recurrence in range(1, recurrences + 1):
        if recurrence in truths:
            priced = truths[recurrence].priced(job.eta_knob)
            costs.append({size: priced[size].mean_cost(job.max_epochs) for size in fitting})
        else:
            costs.append(costs[-1])
    return costs
