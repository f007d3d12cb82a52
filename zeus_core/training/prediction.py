"""Predict what the next epoch takes under the power limit that was chosen after profiling.

    E = E_outside + sum over phases of  n * P / R          T = T_outside + sum over phases of  n / R

with n the samples of the phase in an epoch, P and R its profiled power and throughput at the limit, and E_outside and
T_outside what the epoch took outside the loops. Once whole epochs have run under that limit, their mean is better.
The epochs in which profiling runs are dearer, so that the mean over all would stop a trial too early.
"""

from collections.abc import Mapping, Sequence

from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.training.instrument import NOTHING_SPENT, Spent
from zeus_kfp.zeus_core.training.phases import PhaseTotals


class NextEpoch:
    """Predicts from the epochs so far."""

    def __init__(self, phases: PhaseTotals) -> None:
        """Start before the first epoch."""
        self._phases = phases
        self._loops = NOTHING_SPENT
        self._samples = dict.fromkeys(Phase, 0)
        self._epoch_samples = dict.fromkeys(Phase, 0)
        self._outside = NOTHING_SPENT
        self._settled: list[Spent] = []

    def add_epoch(self, spent: Spent, *, is_settled: bool) -> None:
        """Take in an epoch that has ended.

        Args:
            spent: What it took.
            is_settled: Whether all of it ran under the limit that was chosen.
        """
        loops, samples = self._phases.spent(), {phase: self._phases.samples(phase) for phase in Phase}
        self._outside = spent.less(loops.less(self._loops))
        self._epoch_samples = {phase: samples[phase] - self._samples[phase] for phase in Phase}
        self._loops, self._samples = loops, samples
        if is_settled:
            self._settled.append(spent)

    def predict(self, power_limit_w: float) -> Spent | None:
        """Return what the next epoch takes under a limit in W; None if it can't be known."""
        if self._settled:
            total = sum(self._settled, NOTHING_SPENT)
            count = len(self._settled)
            return Spent(None if total.energy_j is None else total.energy_j / count, total.time_s / count)
        return predict_epoch(self._phases.profiles(), power_limit_w, self._epoch_samples, self._outside)


def predict_epoch(
    rows: Sequence[Profile], power_limit_w: float, samples: Mapping[Phase, int], outside: Spent
) -> Spent | None:
    """Return what an epoch takes; None if the profile doesn't tell.

    Args:
        rows: The profile.
        power_limit_w: Limit in W that the epoch will run under.
        samples: Samples of each phase in an epoch.
        outside: What an epoch takes outside its loops.
    """
    total = outside
    for phase, count in samples.items():
        if not count:
            continue
        known = [row for row in rows if row.phase is phase and row.throughput_samples_per_s]
        at_limit = [row for row in known if row.power_limit_w == power_limit_w]
        # Evaluation may have run under another limit only; training is always profiled.
        row = next(iter(at_limit or (known if phase is Phase.EVAL else [])), None)
        if row is None:
            return None
        time_s = count / row.throughput_samples_per_s
        total += Spent(row.average_power_w * time_s, time_s)
    return total
