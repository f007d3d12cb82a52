"""Hold a program that knows nothing of its trial's limits to them: max_epochs, the cost threshold and its prospects.

Training code that uses :class:`~zeus_kfp.zeus_core.training.Trial` keeps to them itself, and its lines of the history
say what an epoch took. A program of another kind only writes its metric; what it took is seen from outside.
"""

from collections.abc import Sequence

from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.training.instrument import NOTHING_SPENT, Spent
from zeus_kfp.zeus_core.training.prospect import Prospect
from zeus_kfp.zeus_core.training.spending import Spending
from zeus_kfp.zeus_core.trial import TrialPlan


class Limits:
    """Decides after each epoch whether a program must be ended."""

    def __init__(self, plan: TrialPlan, spending: Spending, best_metric: float | None) -> None:
        """Start before the first epoch of an attempt; ``best_metric`` is of those before it, None without any."""
        self._plan = plan
        self._spending = spending
        self._prospect = Prospect(plan, best_metric)
        self._epoch_count = 0
        self._spent = NOTHING_SPENT

    @property
    def least_epochs(self) -> float | None:
        """Epochs that the program very likely needed at least, where it was ended as hopeless; else None."""
        return self._prospect.least_epochs

    def why_stop(self, new: Sequence[EpochRecord], spent: Spent) -> str:
        """Return why the program must be ended now, "" if it may go on.

        Args:
            new: Epochs that have ended since the last call.
            spent: What the program took from its start until now.
        """
        foreign = [record for record in new if record.time_s is None]
        if not foreign:
            return ""
        for record in foreign:
            self._prospect.add_epoch(record.metric)
            self._spending.add_epoch(self._share(spent, len(foreign)))
        self._spent = spent
        self._epoch_count += len(foreign)
        if self._plan.is_reached(foreign[-1].metric):
            return ""
        if self._epoch_count > self._plan.max_epochs:
            return f"max_epochs: ended in epoch {self._epoch_count + 1}"
        why = self._spending.why_stop()
        return why or self._prospect.why_stop(self._epoch_count, self._spending.epochs_left())

    def _share(self, spent: Spent, count: int) -> Spent:
        """Return what each of ``count`` epochs took that ended between two looks."""
        time_s = (spent.time_s - self._spent.time_s) / count
        if spent.energy_j is None or self._spent.energy_j is None:
            return Spent(None, time_s)
        return Spent((spent.energy_j - self._spent.energy_j) / count, time_s)
