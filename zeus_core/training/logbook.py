"""The books of one training run: what every epoch took, and the summary that the supervisor reads."""

import os
from collections.abc import Callable

from zeus_kfp.zeus_core.meters.checked import SecondCount
from zeus_kfp.zeus_core.power import PowerLimiter
from zeus_kfp.zeus_core.training.assignment import Assignment
from zeus_kfp.zeus_core.training.fleet import Hardware
from zeus_kfp.zeus_core.training.group import Group
from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.training.instrument import NOTHING_SPENT, Instrument, Reading, Spent
from zeus_kfp.zeus_core.training.phases import PhaseTotals
from zeus_kfp.zeus_core.training.prediction import NextEpoch
from zeus_kfp.zeus_core.training.progress import epoch_line
from zeus_kfp.zeus_core.training.prospect import Prospect
from zeus_kfp.zeus_core.training.spending import Spending
from zeus_kfp.zeus_core.training.summary import Ending, Summary


class Logbook:
    """Accounts for the epochs of a training run.

    The history file gains a line, and the summary file is replaced, at the end of every epoch, so that a run
    that is killed loses no finished epoch. Of several processes that train together only the first one writes, and
    none that it has forked, which would tell of its own end.
    """

    def __init__(
        self,
        assignment: Assignment,
        instrument: Instrument,
        limiter: PowerLimiter,
        group: Group,
        progress: Callable[[str], None] | None,
    ) -> None:
        """Start before the first epoch; ``progress`` gets a line for people after each."""
        self._assignment = assignment
        self._limiter = limiter
        self._instrument = instrument
        self._group = group
        self._process_id = os.getpid()
        self._progress = progress
        self.phases = PhaseTotals(instrument, assignment.plan.batch_size, group)
        self._hardware = Hardware.of(instrument.meter)
        self._spending = self._new_spending()
        self._prospect = Prospect(assignment.plan, assignment.earlier_best_metric)
        self._first: Reading | None = None
        self._mark: Reading | None = None
        self._total: Spent | None = None
        self._second = SecondCount(instrument.meter)
        self._second_j: float | None = None
        self._epoch_count = 0
        self._metric: float | None = None
        self._next = NextEpoch(self.phases)
        self.settled_limit_w: float | None = None

    @property
    def _is_writer(self) -> bool:
        return self._group.is_leader and os.getpid() == self._process_id

    @property
    def is_started(self) -> bool:
        """Whether the epochs have begun."""
        return self._first is not None

    def start(self, epoch_count: int, hardware: Hardware) -> None:
        """Begin the epochs.

        Args:
            epoch_count: How many of them were trained before, up to a checkpoint.
            hardware: What all processes together run on.
        """
        self._hardware = hardware
        self._spending = self._new_spending()
        self._first = self._mark = self._instrument.read()
        self._second = SecondCount(self._instrument.meter)
        self._epoch_count = epoch_count

    def record_epoch(self, metric: float, *, is_settled: bool = False) -> None:
        """Account for an epoch that has just ended.

        Args:
            metric: Its validation metric.
            is_settled: Whether all of it ran under the power limit that was chosen after profiling.
        """
        before = self._mark
        self._mark = now = self._instrument.read()
        spent = self._group.total(before.until(now) if before else Spent(None, 0.0))
        if self._group.can_talk:
            self._total = self._group.total(self._first.until(now) if self._first else Spent(None, 0.0))
        else:
            self._total = (self._total or NOTHING_SPENT) + spent
        self._second_j = self._group.total(Spent(self._second.so_far().energy_j, 0.0)).energy_j
        self.phases.merge()
        self._next.add_epoch(spent, is_settled=is_settled)
        cost = self._spending.add_epoch(spent)
        self._epoch_count += 1
        self._metric = metric
        self._prospect.add_epoch(metric)
        record = EpochRecord(self._epoch_count, metric, spent.energy_j or None, spent.time_s, cost)
        if self._is_writer:
            record.append_to(self._assignment.history_path)
            self.write_summary(Ending.RUNNING, "")
        if self._progress is not None:
            estimated = self._instrument.meter.estimated
            self._progress(epoch_line(self._assignment.plan, record, self._spending.so_far(), estimated))

    def why_stop(self, power_limit_w: float | None = None) -> str:
        """Return why the next epoch must not start, "" if it may.

        Args:
            power_limit_w: Limit in W that was chosen after profiling, so that the profile tells what the next epoch
                takes; None if nothing was profiled, or not yet.
        """
        following = None if power_limit_w is None else self._next.predict(power_limit_w)
        why = self._spending.why_stop(following)
        return why or self._prospect.why_stop(self._epoch_count, self._spending.epochs_left(following))

    def end(self, ending: Ending, reason: str, *, is_cut_short: bool) -> None:
        """Write the last summary; an epoch that was cut short counts as spent."""
        self.phases.end_all()
        if is_cut_short and self._mark is not None:
            self._total = self._rest_included(self._mark)
            self._second_j = self._second.so_far().energy_j if self._group.size == 1 else self._second_j
        if self._is_writer:
            self.write_summary(ending, reason)

    def _rest_included(self, mark: Reading) -> Spent | None:
        """Return what was spent, with what came since the last epoch; of that, the other processes can't be asked."""
        self._mark = now = self._instrument.read()
        if self._group.size == 1:
            return self._first.until(now) if self._first else None
        return (self._total or NOTHING_SPENT) + mark.until(now)

    def _new_spending(self) -> Spending:
        earlier = Spent(self._assignment.earlier_energy_j, self._assignment.earlier_time_s)
        return Spending(self._assignment.plan, self._hardware.max_power_w, earlier)

    def write_summary(self, ending: Ending, reason: str) -> None:
        """Write what was spent up to the end of the last epoch."""
        meter = self._instrument.meter
        spent = self._total or Spent(None, 0.0)
        Summary(
            ending=ending,
            reason=reason,
            epochs=self._epoch_count,
            metric=self._metric,
            energy_j=spent.energy_j or None,
            time_s=spent.time_s,
            energy_source=meter.name,
            energy_estimated=meter.estimated,
            accelerator=self._hardware.accelerator,
            accelerator_count=self._hardware.count,
            max_power_w=self._hardware.max_power_w,
            profiles=self.phases.profiles(),
            second_energy_j=self._second_j,
            second_energy_source=self._second.source,
            power_limiter=self._limiter.name,
            power_limit_found_w=self._limiter.found_w,
            power_limit_w=self.settled_limit_w,
            least_epochs=self._prospect.least_epochs,
        ).write(self._assignment.summary_path)
