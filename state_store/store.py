"""The product's memory: jobs, recurrences, trials, profiles and what was learnt of each batch size."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy.engine import Connection

from zeus_kfp.state_store import drifting, epochs, housekeeping, managing, opening, reading, trials
from zeus_kfp.state_store.database import PATIENCE_S, Database, url_from_environment
from zeus_kfp.state_store.learning import load_learnt, rebuilt, relearn
from zeus_kfp.state_store.records import (
    DriftRecord,
    JobOverview,
    JobPhase,
    JobRecord,
    OpenedRecurrence,
    ProfileRecord,
    Prunable,
    RecurrenceRecord,
    RecurrenceState,
    TrialRecord,
)
from zeus_kfp.state_store.rows import job_record
from zeus_kfp.state_store.schema import current_version, ensure_schema
from zeus_kfp.state_store.statements import find_job, locked_job
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt
from zeus_kfp.zeus_core.policies import ArmPosterior
from zeus_kfp.zeus_core.profile import Profile
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialPlan, TrialState
from zeus_kfp.zeus_core.validation import text

T = TypeVar("T")


def utc_now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


class StateStore:
    """Everything that outlives a recurrence, in SQLite or PostgreSQL.

    What is kept: each job with its knobs and its policy's random generator; each recurrence (a KFP run), trial and
    profile; and per batch size a summary that the policy reads, so that a suggestion never reads the history.

    Who changes it: open_recurrence, suggest, report and close_recurrence, each in one transaction that holds the
    job's row (PostgreSQL: SELECT … FOR UPDATE; SQLite: BEGIN IMMEDIATE). Operations of one job so come one after
    the other, whatever processes they come from. Each may be repeated: KFP starts a step twice, and the second time
    changes nothing and gives the same answer.

    Transitions: a recurrence is open, then reached, not_reached or expired; one that was given up is reached after all
    if the report of its success only came late. A trial is issued, then reached,
    not_reached, oom, failed or expired; a report that comes after a trial expired is still taken, once, as evidence.
    A reported trial never changes again, except that its cost is worked out anew when the job's eta_knob or rated
    power is changed with consent.

    What survives a crash: all that was committed, and nothing of an operation that was not. Whoever dies without a
    report is expired by the next suggestion of its recurrence, by close_recurrence, or, once its lease has passed,
    by any other recurrence of the job.

    Every operation raises StoreUnavailableError if the database can't be used, and StoreVersionError if its schema is
    newer than this code.
    """

    def __init__(self, url: str, *, clock: Callable[[], datetime] = utc_now, patience_s: float = PATIENCE_S) -> None:
        """Name the database; it is reached, and its schema made, on first use.

        Args:
            url: sqlite:////absolute/path/store.db or postgresql://user:password@host/database.
            clock: Gives the present moment, with a time zone.
            patience_s: How long an operation waits for others, and tries again after a fault that passes.

        Raises:
            InvalidValueError: If the URL is of no supported kind.
        """
        self._database = Database(url, patience_s)
        self._clock = clock
        self._schema_is_there = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, *, patience_s: float = PATIENCE_S) -> Self:
        """Return the store that ZEUS_KFP_STORE_URL names.

        Args:
            environ: Environment variables.
            patience_s: How long an operation waits for others, and tries again after a fault that passes.

        Raises:
            InvalidValueError: If the variable is not set or no supported URL.
        """
        return cls(url_from_environment(environ), patience_s=patience_s)

    def __repr__(self) -> str:
        """Show where the store is, without its password."""
        return f"StateStore({self._database.place})"

    def __enter__(self) -> Self:
        """Use the store in a with block, which closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    def upgrade(self) -> None:
        """Make or upgrade the schema."""
        ensure_schema(self._database)
        self._schema_is_there = True

    def check(self) -> str | None:
        """Return the schema's version, None for a database without one."""
        return self._database.attempt(lambda: current_version(self._database))

    def open_recurrence(
        self, spec: JobSpec, run_id: str, *, on_knob_change: str = "refuse", data_version: str = ""
    ) -> OpenedRecurrence:
        """Register the job the first time, reap what died, and open a recurrence or say why not.

        It is opened if the job goes on, its period has passed since the last one was opened or drift was signalled
        since then, and a slot is free. A clock that goes back counts as if the period had begun at that moment.

        Args:
            spec: The job's knobs.
            run_id: The KFP run; asked again with the same one, the answer is the same.
            on_knob_change: What to do if the knobs differ from the registered ones. "refuse", or "accept": go on
                with the new ones. What was learnt is rebuilt under them; a change of target_metric,
                higher_is_better or max_epochs makes earlier trials count no longer. max_retries, num_recurrences,
                max_concurrent_recurrences, max_concurrent_recurrences_per_user, period_s, preprocess_every,
                max_trial_time_s and user may change without consent.
            data_version: Version of the raw data, part of the data epoch; "" for that of the recurrence before.
                A new one counts as drift.

        Raises:
            JobChangedError: If the knobs differ and on_knob_change is "refuse".
            NoBatchSizeLeftError: If every batch size is ruled out.
            InvalidValueError: If an argument is not usable.
        """
        text("run_id", run_id)
        text("data_version", data_version, allow_empty=True)
        return self._write(
            lambda c: opening.open_recurrence(c, self._now(), spec, run_id, on_knob_change, data_version)
        )

    def suggest(self, job_id: str, run_id: str, slot: int) -> TrialPlan | None:
        """Hand out the trial of a slot; None once the recurrence has nothing left to try.

        Args:
            job_id: The job's name.
            run_id: The KFP run.
            slot: Which try of the recurrence, from 1; asked again for the same one, the same trial is handed out.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
            InvalidValueError: If the slot is no positive integer.
        """
        _check_names(job_id, run_id)
        return self._write(lambda c: trials.suggest(c, self._now(), job_id, run_id, slot))

    def report(
        self, job_id: str, run_id: str, slot: int, outcome: TrialOutcome, profiles: Sequence[Profile] = ()
    ) -> TrialRecord:
        """Finish a trial and learn from it; the same report again changes nothing.

        Args:
            job_id: The job's name.
            run_id: The KFP run.
            slot: The trial's slot.
            outcome: What came of it.
            profiles: What it measured.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
            UnknownTrialError: If no trial was handed out to the slot.
            ConflictingReportError: If the trial has reported something else; the first report is kept.
            InvalidValueError: If the cost can't be worked out.
        """
        _check_names(job_id, run_id)
        return self._write(lambda c: trials.report(c, self._now(), job_id, run_id, slot, outcome, profiles))

    def remaining_slots(self, job_id: str, run_id: str, slot: int) -> tuple[int, ...]:
        """Return the slots after ``slot`` that a recurrence may still use, none once it has its winner."""
        return self._read(lambda c: trials.remaining_slots(c, job_id, run_id, slot))

    def close_recurrence(self, job_id: str, run_id: str) -> RecurrenceRecord:
        """End a recurrence: expire what never reported, free its slot; one that has ended stays as it is.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
        """
        _check_names(job_id, run_id)
        return self._write(lambda c: opening.close_recurrence(c, self._now(), job_id, run_id))

    def signal_drift(self, job_id: str, reason: str, *, value: float | None = None) -> DriftRecord:
        """Let the next run of a job open a recurrence, whether or not the period has passed.

        Exactly one recurrence takes it. While it waits for one, the same reason again changes nothing.

        Args:
            job_id: The job's name.
            reason: What has changed, in words, up to 255 characters.
            value: A figure that goes with it, for people; None for none.

        Raises:
            UnknownJobError: If there is no such job.
            InvalidValueError: If the reason is empty or too long, or the value not finite.
        """
        text("job_id", job_id)
        return self._write(lambda c: drifting.signal_drift(c, self._now(), job_id, reason, value))

    def take_stage_turn(self, job_id: str, run_id: str, stage: str, every: int) -> bool:
        """Return whether a stage runs in a recurrence, and keep that it does; asked again, the answer is the same.

        Args:
            job_id: The job's name.
            run_id: The KFP run.
            stage: The stage's name.
            every: Recurrences from one turn to the next, 1 for each; 0: once for each data epoch.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
            InvalidValueError: If the stage is no name, or every no integer of 0 or more.
        """
        _check_names(job_id, run_id)
        return self._write(lambda c: epochs.take_stage_turn(c, job_id, run_id, stage, every))

    def complete_job(self, job_id: str) -> None:
        """End a job: later runs of it are granted nothing. Recurrences under way go on.

        Raises:
            UnknownJobError: If there is no such job.
        """
        self._write(lambda c: managing.set_phase(c, job_id, JobPhase.COMPLETED))

    def reopen_job(self, job_id: str) -> None:
        """Go on with a job that was completed or deleted.

        Raises:
            UnknownJobError: If there is no such job.
        """
        self._write(lambda c: managing.set_phase(c, job_id, JobPhase.RUNNING))

    def delete_job(self, job_id: str, *, keep_history: bool = True) -> None:
        """Strike a job out: it is listed no longer, and later runs of it are granted nothing.

        Args:
            job_id: The job's name.
            keep_history: Whether its rows stay, and its name with them.

        Raises:
            UnknownJobError: If there is no such job.
            JobInUseError: If a recurrence of it is open.
        """
        if keep_history:
            self._write(lambda c: managing.set_phase(c, job_id, JobPhase.DELETED))
        else:
            self._write(lambda c: managing.purge(c, job_id))

    def reset_job(self, job_id: str, *, keep_history: bool = True) -> None:
        """Forget what was learnt of a job, so that it explores anew.

        Args:
            job_id: The job's name.
            keep_history: Whether earlier recurrences and trials stay readable; they count no longer.

        Raises:
            UnknownJobError: If there is no such job.
            JobInUseError: If a recurrence of it is open.
        """
        self._write(lambda c: managing.reset(c, job_id, keep_history=keep_history))

    def rebuild(self, job_id: str) -> Learnt:
        """Rebuild what was learnt of a job from its trial rows alone, keep that, and return it."""
        return self._write(lambda c: relearn(c, locked_job(c, job_id)))

    def winner(self, job_id: str, run_id: str) -> TrialRecord | None:
        """Return the trial of a run that reached the target, None if there is none.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
        """
        return self._read(lambda c: reading.winner(c, job_id, run_id))

    def job(self, job_id: str) -> JobRecord:
        """Return a job.

        Raises:
            UnknownJobError: If there is no such job.
        """
        return self._read(lambda c: job_record(find_job(c, job_id)))

    def jobs(
        self, *, phase: JobPhase | None = None, user: str | None = None, since: datetime | None = None
    ) -> tuple[JobOverview, ...]:
        """Return jobs with their latest recurrence, by name.

        Args:
            phase: Only those in this phase; None for all but deleted ones.
            user: Only those of this user.
            since: Only those registered, or last opened, at or after this moment (with a time zone).
        """
        return self._read(lambda c: reading.jobs(c, phase=phase, user=user, since=since))

    def recurrences(
        self, job_id: str, *, state: RecurrenceState | None = None, since: datetime | None = None
    ) -> tuple[RecurrenceRecord, ...]:
        """Return a job's recurrences, oldest first.

        Args:
            job_id: The job's name.
            state: Only those in this state.
            since: Only those opened at or after this moment (with a time zone).

        Raises:
            UnknownJobError: If there is no such job.
        """
        return self._read(lambda c: reading.recurrences(c, job_id, state=state, since=since))

    def recurrence(self, job_id: str, run_id: str) -> RecurrenceRecord:
        """Return the recurrence of a run.

        Raises:
            UnknownRecurrenceError: If the run opened none.
        """
        return self._read(lambda c: reading.recurrence(c, job_id, run_id))

    def trials(
        self,
        job_id: str,
        run_id: str | None = None,
        *,
        state: TrialState | None = None,
        batch_size: int | None = None,
        since: datetime | None = None,
    ) -> tuple[TrialRecord, ...]:
        """Return a job's trials, oldest first.

        Args:
            job_id: The job's name.
            run_id: Only those of this run.
            state: Only those in this state.
            batch_size: Only those at this size, in samples.
            since: Only those handed out at or after this moment (with a time zone).

        Raises:
            UnknownJobError: If there is no such job.
        """
        return self._read(
            lambda c: reading.trials(c, job_id, run_id=run_id, state=state, batch_size=batch_size, since=since)
        )

    def profiles(self, job_id: str, *, batch_size: int | None = None) -> tuple[ProfileRecord, ...]:
        """Return what a job's trials measured, oldest first; only those at ``batch_size`` (samples) if it is given.

        Raises:
            UnknownJobError: If there is no such job.
        """
        return self._read(lambda c: reading.profiles(c, job_id, batch_size=batch_size))

    def drifts(self, job_id: str) -> tuple[DriftRecord, ...]:
        """Return every drift that was signalled of a job, oldest first.

        Raises:
            UnknownJobError: If there is no such job.
        """
        return self._read(lambda c: drifting.drifts(c, job_id))

    def prunable(self, job_id: str) -> tuple[Prunable, ...]:
        """Return the models and preprocessed data that a job no longer needs; nothing is deleted.

        Raises:
            UnknownJobError: If there is no such job.
        """
        return self._read(lambda c: housekeeping.prunable(c, job_id))

    def learnt(self, job_id: str) -> Learnt:
        """Return what was learnt of a job."""
        return self._read(lambda c: load_learnt(c, find_job(c, job_id)))

    def learnt_from_rows(self, job_id: str) -> Learnt:
        """Return what the trial rows alone teach of a job: the same as :meth:`learnt` gives."""
        return self._read(lambda c: rebuilt(c, find_job(c, job_id)))

    def arms(self, job_id: str) -> tuple[ArmPosterior, ...]:
        """Return the belief about every batch size of a job, ascending."""
        return self._read(lambda c: reading.arms(c, job_id))

    def _now(self) -> datetime:
        # In any other zone a day would be 23 or 25 hours long when summer time begins or ends.
        return self._clock().astimezone(UTC)

    def _write(self, operation: Callable[[Connection], T]) -> T:
        self._ensure_schema()
        return self._database.write(operation)

    def _read(self, operation: Callable[[Connection], T]) -> T:
        self._ensure_schema()
        return self._database.read(operation)

    def _ensure_schema(self) -> None:
        if not self._schema_is_there:
            self.upgrade()


def _check_names(job_id: str, run_id: str) -> None:
    text("job_id", job_id)
    text("run_id", run_id)
