"""The product's memory: jobs, recurrences, trials, profiles and what was learnt of each batch size."""

from collections.abc import Iterable, Mapping

from zeus_kfp.state_store import drifting, epochs, managing, opening, trials, waiting
from zeus_kfp.state_store.checks import check_names, check_spec, checked_report
from zeus_kfp.state_store.learning import relearn
from zeus_kfp.state_store.listing import Listing
from zeus_kfp.state_store.records import DriftRecord, OpenedRecurrence, RecurrenceRecord, TrialRecord
from zeus_kfp.state_store.statements import locked_job
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt
from zeus_kfp.zeus_core.profile import Profile
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialPlan, TrialState
from zeus_kfp.zeus_core.validation import text, truth


class StateStore(Listing):
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

    def open_recurrence(
        self,
        spec: JobSpec,
        run_id: str,
        *,
        on_knob_change: str = "refuse",
        data_version: str = "",
        start_now: bool = False,
    ) -> OpenedRecurrence:
        """Register the job the first time, reap what died, and open a recurrence or say why not.

        It is opened if the job goes on, its period has passed since the last one was opened or drift was signalled
        since then, and a slot is free. A clock that goes back counts as if the period had begun at that moment.

        Args:
            spec: The job's knobs.
            run_id: The KFP run; asked again with the same one, the answer is the same.
            on_knob_change: What to do if the knobs differ from the registered ones. "refuse", or "accept": go on
                with the new ones. What was learnt is rebuilt under them; a change of target_metric,
                higher_is_better, max_epochs or learning_rate_rule makes earlier trials count no longer, and so does
                one of default_batch_size where learning rates are scaled from it. max_retries, num_recurrences,
                max_concurrent_recurrences, max_concurrent_recurrences_per_user, period_s, preprocess_every,
                max_trial_time_s, max_step_time_s, hopeless_stop and user may change without consent.
            data_version: Version of the raw data, part of the data epoch; "" for that of the recurrence before.
                A new one counts as drift.
            start_now: Whether to wait for no period; the caps hold all the same, and a new period begins.

        Raises:
            JobChangedError: If the knobs differ and on_knob_change is "refuse".
            NoBatchSizeLeftError: If every batch size is ruled out.
            InvalidValueError: If an argument is not usable.
        """
        check_spec(spec)
        text("run_id", run_id)
        text("data_version", data_version, allow_empty=True)
        truth("start_now", start_now)
        return self._write(
            lambda c: opening.open_recurrence(c, self._now(), spec, run_id, on_knob_change, data_version, start_now)
        )

    def why_must_wait(self, job_id: str, run_id: str, *, slow_start: bool = True) -> str:
        """Return why a recurrence should not go on yet, "" if it may; asking keeps its lease alive.

        A new job's recurrences that overlap run one at a time, and another for every two results. And they make the
        same data once: the one of the lowest number does, the others ask again until it has, or takes twice as long as
        it took at most before. One that waits and does not ask for an hour holds nobody up.

        Args:
            job_id: The job's name.
            run_id: The KFP run.
            slow_start: Whether to wait for the results of earlier recurrences, and not just for their data.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
            InvalidValueError: If slow_start is neither true nor false.
        """
        check_names(job_id, run_id)
        truth("slow_start", slow_start)
        return self._write(lambda c: waiting.why_must_wait(c, self._now(), job_id, run_id, slow_start))

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
        check_names(job_id, run_id)
        return self._write(lambda c: trials.suggest(c, self._now(), job_id, run_id, slot))

    def report(
        self, job_id: str, run_id: str, slot: int, outcome: TrialOutcome, profiles: Iterable[Profile] = ()
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
        check_names(job_id, run_id)
        measured = checked_report(outcome, profiles)
        return self._write(lambda c: trials.report(c, self._now(), job_id, run_id, slot, outcome, measured))

    def note_lost_pod(
        self, job_id: str, run_id: str, slot: int, node: str, limits_w: Mapping[str, float]
    ) -> TrialRecord:
        """Keep where the pod of a trial was that never reported; one that has reported stays as it is.

        Args:
            job_id: The job's name.
            run_id: The KFP run.
            slot: The trial's slot.
            node: The machine that the pod was on.
            limits_w: Power limit in W of its GPUs before the trial, by UUID; added to those that are known.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
            UnknownTrialError: If no trial was handed out to the slot.
            InvalidValueError: If a value can't be what it says.
        """
        check_names(job_id, run_id)
        told = TrialOutcome(TrialState.FAILED, node=node, power_limits_found_w=limits_w)
        limits = told.power_limits_found_w
        return self._write(lambda c: trials.note_lost_pod(c, job_id, run_id, slot, told.node, limits))

    def remaining_slots(self, job_id: str, run_id: str, slot: int) -> tuple[int, ...]:
        """Return the slots after ``slot`` that a recurrence may still use, none once it has its winner."""
        check_names(job_id, run_id)
        return self._read(lambda c: trials.remaining_slots(c, job_id, run_id, slot))

    def close_recurrence(self, job_id: str, run_id: str) -> RecurrenceRecord:
        """End a recurrence: expire what never reported, free its slot; one that has ended stays as it is.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
        """
        check_names(job_id, run_id)
        return self._write(lambda c: opening.close_recurrence(c, self._now(), job_id, run_id))

    def signal_drift(self, job_id: str, reason: str, *, value: float | None = None) -> DriftRecord:
        """Let the next run of a job open a recurrence, whether or not the period has passed.

        Exactly one recurrence takes it, and gives it back if it ends before its first trial. While it waits, the same
        reason again changes nothing.

        Args:
            job_id: The job's name.
            reason: What has changed, in words, up to 255 characters.
            value: A figure that goes with it, for people; None for none.

        Raises:
            UnknownJobError: If there is no such job.
            InvalidValueError: If the reason is empty or too long, or the value not finite.
        """
        check_names(job_id)
        return self._write(lambda c: drifting.signal_drift(c, self._now(), job_id, reason, value))

    def take_stage_turn(self, job_id: str, run_id: str, stage: str, every: int) -> bool:
        """Return whether a stage runs in a recurrence, and keep that it does; asked again, the answer is the same.

        A turn that came to nothing, since its recurrence ended before finish_stage_turn, is given to a later one.

        Args:
            job_id: The job's name.
            run_id: The KFP run.
            stage: The stage's name.
            every: Recurrences from one turn to the next, 1 for each; 0: once for each data epoch; -1: once per job.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
            InvalidValueError: If the stage is no name, or every no integer of -1 or more.
        """
        check_names(job_id, run_id)
        return self._write(lambda c: epochs.take_stage_turn(c, self._now(), job_id, run_id, stage, every))

    def finish_stage_turn(self, job_id: str, run_id: str, stage: str) -> None:
        """Keep that a stage was done in a recurrence whose turn it was; once more changes nothing.

        Raises:
            UnknownJobError: If there is no such job.
            UnknownRecurrenceError: If the run opened no recurrence of it.
            InvalidValueError: If it was not the stage's turn.
        """
        check_names(job_id, run_id)
        self._write(lambda c: epochs.finish_stage_turn(c, self._now(), job_id, run_id, stage))

    def complete_job(self, job_id: str) -> None:
        """End a job: later runs of it are granted nothing. Recurrences under way go on.

        Raises:
            UnknownJobError: If there is no such job.
        """
        check_names(job_id)
        self._write(lambda c: managing.complete(c, job_id))

    def reopen_job(self, job_id: str) -> None:
        """Go on with a job that was completed or deleted.

        Raises:
            UnknownJobError: If there is no such job.
        """
        check_names(job_id)
        self._write(lambda c: managing.reopen(c, job_id))

    def delete_job(self, job_id: str, *, keep_history: bool = True) -> None:
        """Strike a job out: it is listed no longer, and later runs of it are granted nothing.

        Args:
            job_id: The job's name.
            keep_history: Whether its rows stay, and its name with them.

        Raises:
            UnknownJobError: If there is no such job.
            JobInUseError: If a recurrence of it is open.
            InvalidValueError: If keep_history is neither true nor false.
        """
        check_names(job_id)
        truth("keep_history", keep_history)
        if keep_history:
            self._write(lambda c: managing.strike_out(c, self._now(), job_id))
        else:
            self.job(job_id)
            self._write(lambda c: managing.purge(c, self._now(), job_id))

    def reset_job(self, job_id: str, *, keep_history: bool = True) -> None:
        """Forget what was learnt of a job, so that it explores anew.

        Args:
            job_id: The job's name.
            keep_history: Whether earlier recurrences and trials stay readable; they count no longer.

        Raises:
            UnknownJobError: If there is no such job.
            JobInUseError: If a recurrence of it is open.
            InvalidValueError: If keep_history is neither true nor false.
        """
        check_names(job_id)
        truth("keep_history", keep_history)
        self._write(lambda c: managing.reset(c, self._now(), job_id, keep_history=keep_history))

    def rebuild(self, job_id: str) -> Learnt:
        """Rebuild what was learnt of a job from its trial rows alone, keep that, and return it."""
        check_names(job_id)
        return self._write(lambda c: relearn(c, locked_job(c, job_id)))
