"""Run one trial of the user's training code and return what came of it as data.

The training code runs in a process group of its own. Whatever happens to it (a crash, a lack of memory, SIGKILL, a
hang beyond the trial's time cap) is an outcome; only an entry point that can't be started is an error. Nothing that
the process writes is trusted.
"""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus_kfp.components.train_with_profiling.entry_point import ALLOWED, Command, resolve
from zeus_kfp.components.train_with_profiling.environment import child_environment
from zeus_kfp.components.train_with_profiling.follower import HistoryFollower
from zeus_kfp.components.train_with_profiling.judging import Evidence, judge
from zeus_kfp.components.train_with_profiling.ledger import Ledger, trial_folder
from zeus_kfp.components.train_with_profiling.limits import Limits
from zeus_kfp.components.train_with_profiling.limits_found import left_changed, with_limits_folder
from zeus_kfp.components.train_with_profiling.measuring import Measured, rated_power_w
from zeus_kfp.components.train_with_profiling.outcome import curve_told, data_missing, has_model, outcome_of
from zeus_kfp.components.train_with_profiling.watch import REPAIR_PATIENCE_S, Ended, Watch
from zeus_kfp.zeus_core.errors import EntryPointError, InvalidValueError
from zeus_kfp.zeus_core.meters import Meter, open_meter
from zeus_kfp.zeus_core.power import repair_limits, standing_limits_w
from zeus_kfp.zeus_core.profile import write_profiles
from zeus_kfp.zeus_core.training.assignment import Assignment, check_arguments
from zeus_kfp.zeus_core.training.instrument import Instrument, Spent
from zeus_kfp.zeus_core.training.progress import start_line
from zeus_kfp.zeus_core.training.spending import Spending
from zeus_kfp.zeus_core.training.summary import Ending, Summary
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialPlan, TrialState

GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL at the time cap: enough to save a checkpoint, no more."""


def supervise(
    plan: TrialPlan,
    *,
    entry_point: str,
    entry_source: str = "",
    arguments: Mapping[str, Any],
    data_path: str,
    model_path: str,
    model_uri: str,
    history_path: str,
    profile_path: str,
    checkpoint_dir: str = "",
    environ: Mapping[str, str] = os.environ,
    meter: Meter | None = None,
    clock: Callable[[], float] = time.monotonic,
    grace_s: float = GRACE_S,
) -> TrialOutcome:
    """Run a trial and return its outcome.

    Args:
        plan: The trial's plan.
        entry_point: module:function, a script with its arguments, or any command.
        entry_source: Source text that defines the function; "" where the entry point needs none.
        arguments: The user's own arguments; what JSON can hold.
        data_path: The preprocessed data set; "" for none.
        model_path: Where the training code saves the model.
        model_uri: What the model's path is called outside this process.
        history_path: File that gets one JSON line an epoch.
        profile_path: File that gets the power and throughput of each phase (JSON).
        checkpoint_dir: Folder that outlives this process's pod; "" for none.
        environ: Environment of this process and, but for the store's URL, of the training process.
        meter: What measures energy around the training process; None opens the best there is.
        clock: Returns a time in s.
        grace_s: Seconds that training has to end by itself once its time is over.

    Raises:
        EntryPointError: If the entry point can't be found or called; nothing was trained or written then.
        InvalidValueError: If an argument is nothing that JSON can hold.
    """
    check_arguments(arguments)
    environ = with_limits_folder(environ, checkpoint_dir)
    with tempfile.TemporaryDirectory(prefix="zeus-kfp-") as folder:
        scratch = Path(folder)
        command = resolve(entry_point, entry_source, scratch, environ)
        paths = _Paths(Path(model_path), Path(history_path), Path(profile_path), scratch)
        paths.make_folders()
        if data_path and not Path(data_path).exists():
            paths.write_missing()
            return data_missing(data_path)
        ledger = Ledger(trial_folder(Path(checkpoint_dir or paths.model.parent), plan), _attempt_name(environ), _say)
        finished = ledger.outcome
        if finished is not None and (not finished.model_uri or has_model(model_path)):
            return _told_again(finished, paths)
        with closing(meter or open_meter(environ)) as opened:
            earlier = ledger.spent_earlier(rated_power_w(opened))
            assignment = Assignment(
                plan=plan,
                data_path=data_path,
                model_path=model_path,
                checkpoint_dir=str(_checkpoint_folder(ledger, scratch)),
                history_path=str(paths.told_history),
                summary_path=str(paths.summary),
                arguments=arguments,
                earlier_energy_j=earlier.energy_j or 0.0,
                earlier_time_s=earlier.time_s,
                earlier_best_metric=plan.best_of(attempt.best_metric for attempt in ledger.earlier),
            )
            paths.assignment.write_text(assignment.to_json(), encoding="utf-8")
            run = _Run(assignment, paths, ledger, model_uri, earlier)
            return run.outcome(command, environ, Instrument(opened, clock, _nothing), grace_s)


@dataclass(frozen=True, slots=True)
class _Paths:
    """Where a trial's files lie; what its process writes stays in the scratch folder until it is checked."""

    model: Path
    history: Path
    profile: Path
    scratch: Path

    @property
    def told_history(self) -> Path:
        return self.scratch / "history.jsonl"

    @property
    def summary(self) -> Path:
        return self.scratch / "summary.json"

    @property
    def assignment(self) -> Path:
        return self.scratch / "trial.json"

    def make_folders(self) -> None:
        for path in (self.model, self.history, self.profile):
            path.parent.mkdir(parents=True, exist_ok=True)

    def write_missing(self) -> None:
        """Write an empty history and profile where there are none: KFP expects every output."""
        if not self.history.exists():
            self.history.write_text("", encoding="utf-8")
        if not self.profile.exists():
            write_profiles(self.profile, [])


@dataclass(frozen=True, slots=True)
class _Run:
    """One attempt at a trial."""

    assignment: Assignment
    paths: _Paths
    ledger: Ledger
    model_uri: str
    earlier: Spent
    """What earlier attempts took."""

    def outcome(
        self, command: Command, environ: Mapping[str, str], instrument: Instrument, grace_s: float
    ) -> TrialOutcome:
        """Train, and return what came of it."""
        self.ledger.begin()
        variables = child_environment(environ, command.environ, self.assignment, str(self.paths.assignment))
        plan, meter, follower = self.assignment.plan, instrument.meter, self._follower()
        _say(start_line(plan, meter.name, meter.estimated, meter.accelerator))
        cap_s = max(plan.max_trial_time_s - self.assignment.earlier_time_s, 0.0)
        # What a pod before this one left behind on the machine is put right whether or not this trial sets limits.
        repair_limits(variables, patience_s=REPAIR_PATIENCE_S)
        limits_found_w = standing_limits_w(variables)
        try:
            spending = Spending(plan, meter.max_power_w, self.earlier)
            limits = Limits(plan, spending, self.assignment.earlier_best_metric)
            watch = Watch(plan, instrument, follower, self.ledger, limits, _say)
            ended = watch.run(command.argv, variables, cap_s=cap_s, grace_s=grace_s)
            summary = self._summary()
        except EntryPointError:
            self._undo()
            raise
        for line in left_changed(limits_found_w, standing_limits_w(variables)):
            _say(line)
        outcome = self._judged(ended, summary, follower, meter, limits_found_w, limits.least_epochs)
        _say(f"trial {plan.number}: {outcome.state.value}: {outcome.reason}")
        return outcome

    def _judged(
        self,
        ended: Ended,
        summary: Summary | None,
        follower: HistoryFollower,
        meter: Meter,
        limits_found_w: Mapping[str, float],
        least_epochs: float | None,
    ) -> TrialOutcome:
        plan, records, attempts = self.assignment.plan, follower.records, len(self.ledger.earlier) + 1
        evidence = Evidence(
            exit_code=ended.exit_code,
            stopped=ended.stopped,
            last_lines=ended.last_lines,
            summary=summary,
            epochs=summary.epochs if summary else len(records),
            metric=records[-1].metric if records else None,
            has_model=has_model(self.assignment.model_path),
            least_epochs=least_epochs or (summary.least_epochs if summary else None),
            curve=curve_told(plan, records, is_own=summary is not None, attempts=attempts),
        )
        verdict = judge(plan, evidence)
        ended_well = verdict.state in (TrialState.REACHED, TrialState.NOT_REACHED) and not ended.stopped
        told = Measured.from_inside(summary, ended.seen) if summary and ended_well else None
        measured = told or Measured.from_outside(ended.seen, meter, ended.second)
        outcome = outcome_of(
            verdict,
            evidence,
            measured.with_earlier(self.earlier, is_known=self.ledger.is_energy_known),
            limits_found_w=limits_found_w,
            attempts=attempts,
            model_uri=self.model_uri if evidence.has_model else "",
        )
        profiles = summary.profiles if summary else ()
        self.paths.make_folders()
        write_profiles(self.paths.profile, [row for row in profiles if row.batch_size == plan.batch_size])
        self.ledger.finish(Spent(measured.energy_j, measured.time_s), outcome)
        return outcome

    def _follower(self) -> HistoryFollower:
        return HistoryFollower(self.paths.told_history, self.paths.history, _say)

    def _summary(self) -> Summary | None:
        try:
            summary = Summary.read(self.paths.summary)
        except InvalidValueError as error:
            _say(f"warning: {error}")
            return None
        if summary is not None and summary.ending is Ending.NO_ENTRY_POINT:
            raise EntryPointError(f"{summary.reason}; {ALLOWED}")
        return summary

    def _undo(self) -> None:
        """Leave nothing behind of a trial that never began."""
        self.paths.history.unlink(missing_ok=True)
        self.ledger.withdraw()


def _told_again(finished: TrialOutcome, paths: _Paths) -> TrialOutcome:
    """Return the outcome of an attempt that had come to its end, when the step was started once more."""
    paths.write_missing()
    _say(f"an earlier attempt at this trial has ended already: {finished.state.value}: {finished.reason}")
    return finished


def _checkpoint_folder(ledger: Ledger, scratch: Path) -> Path:
    for folder in (ledger.checkpoint_folder, scratch / "checkpoint"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            break
        except OSError as error:
            _say(f"warning: checkpoints can't be kept in {folder}: {error}")
    return folder


def _attempt_name(environ: Mapping[str, str]) -> str:
    """Return the pod's name, or one that no other process has had."""
    return environ.get("KFP_POD_NAME") or f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"


def _say(line: str) -> None:
    """Print a line; output that nobody reads any more, or that can't show it, must not hold up training."""
    encoding = sys.stdout.encoding or "utf-8"
    with suppress(OSError):
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _nothing() -> None:
    """Wait for no GPU: the supervisor hands it no work."""
