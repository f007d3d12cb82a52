"""See a training process through to its end: pass on its output, keep the books, enforce the limits."""

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zeus_kfp.components.train_with_profiling.child_process import ChildProcess
from zeus_kfp.components.train_with_profiling.follower import HistoryFollower
from zeus_kfp.components.train_with_profiling.kin import taking_in_orphans
from zeus_kfp.components.train_with_profiling.ledger import Ledger
from zeus_kfp.components.train_with_profiling.limits import Limits
from zeus_kfp.components.train_with_profiling.termination import Terminated, signals_held
from zeus_kfp.zeus_core.meters.checked import Second, SecondCount
from zeus_kfp.zeus_core.power import repair_limits
from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.training.instrument import Instrument, Reading, Spent
from zeus_kfp.zeus_core.training.progress import epoch_line
from zeus_kfp.zeus_core.trial import TrialPlan

POLL_INTERVAL_S = 0.25
HEARTBEAT_INTERVAL_S = 5.0
TERMINATION_GRACE_S = 1.0
"""How long the training process may take to end when the supervisor itself is asked to."""

REPAIR_PATIENCE_S = 1.0
"""How long a repair waits for what holds a limit although nothing of the training before should be left."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        exit_code: Its exit code, negative for a signal; that of SIGKILL if even this could not end it.
        stopped: Why its supervisor ended it; "" if it ended by itself.
        last_lines: Last lines of its output, oldest first.
        seen: What it took, as seen from outside.
        second: The same energy by the meter that checks the first one.
    """

    exit_code: int
    stopped: str
    last_lines: Sequence[str]
    seen: Spent
    second: Second


class Watch:
    """Watches one training process."""

    def __init__(
        self,
        plan: TrialPlan,
        instrument: Instrument,
        follower: HistoryFollower,
        ledger: Ledger,
        limits: Limits,
        say: Callable[[str], None],
    ) -> None:
        """Prepare to watch.

        Args:
            plan: The trial's plan.
            instrument: Clock and meter.
            follower: Reads the process's history.
            ledger: Gets what was spent and reached so far, every few seconds and after every epoch.
            limits: Decides whether the process must be ended.
            say: Prints a line for people.
        """
        self._plan = plan
        self._instrument = instrument
        self._follower = follower
        self._cost: float | None = 0.0
        self._ledger = ledger
        self._limits = limits
        self._say = say
        self._start = instrument.read()
        self._second = SecondCount(instrument.meter)
        self._last_beat_s = self._start.time_s

    def run(self, argv: Sequence[str], environ: Mapping[str, str], *, cap_s: float, grace_s: float) -> Ended:
        """Start a process and return how it ended.

        Args:
            argv: Program and arguments.
            environ: Its whole environment.
            cap_s: Seconds after which it is ended.
            grace_s: Seconds that it then has between SIGTERM and SIGKILL.

        Raises:
            EntryPointError: If it can't be started.
        """
        # Neither the start nor the end may be broken off: training would go on, or its limits stand, unwatched.
        with signals_held() as signals, taking_in_orphans():
            child = ChildProcess(argv, environ, self._say)
            try:
                with signals.let_through():
                    stopped = self._follow(child, cap_s)
                    if stopped:
                        self._say(f"training is ended: {stopped}")
                        child.stop(grace_s)
            except Terminated:
                self._beat(self._instrument.read())
                child.stop(TERMINATION_GRACE_S)
                raise
            finally:
                child.close()
                # It has put back the power limits that it changed, unless it was killed.
                repair_limits(environ, patience_s=REPAIR_PATIENCE_S)
        self._report(self._follower.read_new(final=True))
        seen, second = self._start.until(self._instrument.read()), self._second.so_far()
        if child.exit_code is None:
            return Ended(-signal.SIGKILL, f"{stopped}; its process could not be killed", child.last_lines, seen, second)
        return Ended(child.exit_code, stopped, child.last_lines, seen, second)

    def _follow(self, child: ChildProcess, cap_s: float) -> str:
        """Return "" once the process has ended by itself, or why it must be ended."""
        remaining_s = cap_s
        while not child.wait(min(POLL_INTERVAL_S, remaining_s)):
            now = self._instrument.read()
            remaining_s = cap_s - (now.time_s - self._start.time_s)
            if remaining_s <= 0:
                return f"time cap: {self._plan.max_trial_time_s:g} s are over"
            new = self._follower.read_new()
            if new or now.time_s - self._last_beat_s >= HEARTBEAT_INTERVAL_S:
                self._beat(now)
            why = self._limits.why_stop(new, self._start.until(now))
            self._report(new)
            if why:
                return why
        return ""

    def _beat(self, now: Reading) -> None:
        best_metric = self._plan.best_of(record.metric for record in self._follower.records)
        self._ledger.beat(self._start.until(now), best_metric)
        self._last_beat_s = now.time_s

    def _report(self, records: Sequence[EpochRecord]) -> None:
        for record in records:
            self._cost = None if self._cost is None or record.cost is None else self._cost + record.cost
            self._say(epoch_line(self._plan, record, self._cost, self._instrument.meter.estimated))
