"""Whether a trial can still end within what it may take, by its metric so far and the curves of earlier trials."""

from zeus_kfp.zeus_core.learning_curve import LEAST_EPOCHS, least_epochs
from zeus_kfp.zeus_core.trial import TrialPlan


class Prospect:
    """What the metrics of a trial promise."""

    def __init__(self, plan: TrialPlan, best_metric: float | None = None) -> None:
        """Start before the first epoch of an attempt at the trial.

        Args:
            plan: The trial's plan.
            best_metric: The best that earlier attempts reported, whose epochs count too; None without any.
        """
        self._plan = plan
        self._best = best_metric
        self._count = 0
        self.least_epochs: float | None = None
        """Epochs that the trial very likely needs at least, once it is hopeless."""

    def add_epoch(self, metric: float) -> None:
        """Take in the metric of an epoch, or the first that is known since several."""
        self._best = self._plan.best_of((self._best, metric))
        self._count += 1

    def why_stop(self, epochs: int, epochs_left: float) -> str:
        """Return why the trial is hopeless, "" if it may still reach its target in time.

        Args:
            epochs: Epochs trained, those of earlier attempts included that a checkpoint kept.
            epochs_left: How many more its cost threshold allows.
        """
        if self._best is None or self._count < LEAST_EPOCHS:
            return ""
        plan = self._plan
        least = least_epochs(plan.reference, epochs, self._best, higher_is_better=plan.higher_is_better)
        allowed = min(epochs + epochs_left, plan.max_epochs)
        if least <= allowed:
            return ""
        self.least_epochs = least
        limit = "max_epochs" if allowed == plan.max_epochs else "the cost threshold"
        return (
            f"hopeless: the best metric after {epochs} epochs is {self._best:.6g}; by the curves of earlier trials it "
            f"takes {least:.0f} epochs or more to reach {plan.target_metric:g}, and {limit} allows {allowed:.0f}"
        )
