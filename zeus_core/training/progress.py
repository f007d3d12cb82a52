"""Say how a trial gets on, in lines for people."""

from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.trial import TrialPlan


def start_line(plan: TrialPlan, meter_name: str, estimated: bool, accelerator: str) -> str:
    """Return what a trial is about to do, and why."""
    sign = ">=" if plan.higher_is_better else "<="
    stop = "" if plan.cost_threshold is None else f", stops early before a cost of {plan.cost_threshold:.4g} J"
    energy = f"estimated ({meter_name})" if estimated else f"measured by {meter_name}"
    return (
        f"trial {plan.number} (try {plan.slot}): batch size {plan.batch_size}: {plan.why or plan.purpose.value}; "
        f"target {sign} {plan.target_metric:g} within {plan.max_epochs} epochs{stop}; "
        f"energy {energy} on {accelerator}"
    )


def epoch_line(plan: TrialPlan, record: EpochRecord, cost_so_far: float | None, estimated: bool) -> str:
    """Return how an epoch went; what is not known is left out.

    Args:
        plan: The trial's plan.
        record: The epoch.
        cost_so_far: Cost in J of the trial up to and with this epoch; None if not known.
        estimated: Whether the energy is an estimate.
    """
    parts = [f"metric {record.metric:.6g} (target {plan.target_metric:g})"]
    if record.time_s is not None:
        parts.append(f"{record.time_s:.3g} s")
    if record.energy_j is not None:
        parts.append(f"{record.energy_j:.4g} J{' estimated' if estimated else ''}")
    if cost_so_far is not None:
        limit = "" if plan.cost_threshold is None else f" of at most {plan.cost_threshold:.4g} J"
        parts.append(f"cost so far {cost_so_far:.4g} J{limit}")
    return f"epoch {record.epoch}/{plan.max_epochs}: " + ", ".join(parts)
