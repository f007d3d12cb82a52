"""What people and programs look up in a store; nothing here changes it."""

from datetime import datetime

from zeus_kfp.state_store import drifting, housekeeping, reading
from zeus_kfp.state_store.access import Access
from zeus_kfp.state_store.checks import check_names, checked_member, checked_since, checked_size
from zeus_kfp.state_store.learning import load_learnt, rebuilt
from zeus_kfp.state_store.records import (
    DriftRecord,
    JobExport,
    JobOverview,
    JobPhase,
    JobRecord,
    ProfileRecord,
    Prunable,
    RecurrenceRecord,
    RecurrenceState,
    TrialRecord,
)
from zeus_kfp.state_store.rows import job_record
from zeus_kfp.state_store.statements import find_job
from zeus_kfp.zeus_core.learnt import Learnt
from zeus_kfp.zeus_core.policies import ArmPosterior
from zeus_kfp.zeus_core.trial import TrialState
from zeus_kfp.zeus_core.validation import text


class Listing(Access):
    """The questions that a store answers."""

    def winner(self, job_id: str, run_id: str) -> TrialRecord | None:
        """Return the trial of a run that reached the target, None if there is none.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
        """
        check_names(job_id, run_id)
        return self._read(lambda c: reading.winner(c, job_id, run_id))

    def job(self, job_id: str) -> JobRecord:
        """Return a job.

        Raises:
            UnknownJobError: If there is no such job.
        """
        check_names(job_id)
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
        if user is not None:
            text("user", user, allow_empty=True)
        chosen, moment = checked_member("phase", JobPhase, phase), checked_since(since)
        return self._read(lambda c: reading.jobs(c, phase=chosen, user=user, since=moment))

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
        check_names(job_id)
        chosen, moment = checked_member("state", RecurrenceState, state), checked_since(since)
        return self._read(lambda c: reading.recurrences(c, job_id, state=chosen, since=moment))

    def recurrence(self, job_id: str, run_id: str) -> RecurrenceRecord:
        """Return the recurrence of a run.

        Raises:
            UnknownRecurrenceError: If the run opened none.
        """
        check_names(job_id, run_id)
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
        check_names(job_id, *([] if run_id is None else [run_id]))
        chosen, moment, size = (
            checked_member("state", TrialState, state),
            checked_since(since),
            checked_size(batch_size),
        )
        return self._read(
            lambda c: reading.trials(c, job_id, run_id=run_id, state=chosen, batch_size=size, since=moment)
        )

    def profiles(
        self, job_id: str, *, batch_size: int | None = None, since: datetime | None = None
    ) -> tuple[ProfileRecord, ...]:
        """Return what a job's trials measured, oldest first.

        Args:
            job_id: The job's name.
            batch_size: Only at this size, in samples.
            since: Only of trials handed out at or after this moment (with a time zone).

        Raises:
            UnknownJobError: If there is no such job.
        """
        check_names(job_id)
        size, moment = checked_size(batch_size), checked_since(since)
        return self._read(lambda c: reading.profiles(c, job_id, batch_size=size, since=moment))

    def export(self, job_id: str) -> JobExport:
        """Return everything that is known of a job, as it stands at one moment.

        Raises:
            UnknownJobError: If there is no such job.
        """
        check_names(job_id)
        return self._read(lambda c: reading.export(c, job_id))

    def drifts(self, job_id: str) -> tuple[DriftRecord, ...]:
        """Return every drift that was signalled of a job, oldest first.

        Raises:
            UnknownJobError: If there is no such job.
        """
        check_names(job_id)
        return self._read(lambda c: drifting.drifts(c, job_id))

    def prunable(self, job_id: str) -> tuple[Prunable, ...]:
        """Return the models and preprocessed data that a job no longer needs; nothing is deleted.

        Raises:
            UnknownJobError: If there is no such job.
        """
        check_names(job_id)
        return self._read(lambda c: housekeeping.prunable(c, job_id))

    def learnt(self, job_id: str) -> Learnt:
        """Return what was learnt of a job."""
        check_names(job_id)
        return self._read(lambda c: load_learnt(c, find_job(c, job_id)))

    def learnt_from_rows(self, job_id: str) -> Learnt:
        """Return what the trial rows alone teach of a job: the same as :meth:`learnt` gives."""
        check_names(job_id)
        return self._read(lambda c: rebuilt(c, find_job(c, job_id)))

    def arms(self, job_id: str) -> tuple[ArmPosterior, ...]:
        """Return the belief about every batch size of a job, ascending."""
        check_names(job_id)
        return self._read(lambda c: reading.arms(c, job_id))
