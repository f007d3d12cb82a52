"""What may be pruned from storage: superseded models and preprocessed data. Listed, never deleted."""

from sqlalchemy import bindparam, select

from zeus_kfp.state_store.reading import RECURRENCES_OF_JOB, TRIALS_OF_JOB
from zeus_kfp.state_store.records import Prunable, PrunableKind, RecurrenceState
from zeus_kfp.state_store.statements import Row, find_job, joined, rows
from zeus_kfp.state_store.tables import RECURRENCE, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.trial import TrialState

_TRAINED = select(TRIAL.c.recurrence_id).where(TRIAL.c.job_id == bindparam("job_id"))
_WITH_MODEL = TRIALS_OF_JOB.where(TRIAL.c.model_uri != "")


def prunable(transaction: Transaction, job_id: str) -> tuple[Prunable, ...]:
    """Return what a job's recurrences left that nothing needs any more, oldest first, data before models.

    Kept are the latest winner's model, the data of the latest recurrence, and all that an open recurrence uses.
    """
    find_job(transaction, job_id)
    recurrences = rows(transaction, RECURRENCES_OF_JOB, {"job_id": job_id})
    trained = {trial.recurrence_id for trial in rows(transaction, _TRAINED, {"job_id": job_id})}
    return (*_data(recurrences, trained), *_models(transaction, job_id))


def _data(recurrences: list[Row], trained: set[int]) -> list[Prunable]:
    """Return the data that is superseded; trained are the ids of the recurrences that came to a trial."""
    needed = {r.data_epoch for r in recurrences if r.state == RecurrenceState.OPEN}
    needed |= {r.data_epoch for r in recurrences[-1:]}
    last_use = {r.data_epoch: r for r in recurrences if r.data_epoch not in needed}
    made_by = {r.data_epoch: r.run_id for r in reversed(recurrences) if r.id in trained}
    return [
        Prunable(PrunableKind.DATA, "", epoch, r.run_id, r.number, None, r.opened_at, made_by=made_by.get(epoch, ""))
        for epoch, r in last_use.items()
    ]


def _models(transaction: Transaction, job_id: str) -> list[Prunable]:
    found = joined(transaction, _WITH_MODEL, TRIAL, RECURRENCE, {"job_id": job_id})
    winners = [trial for trial, _ in found if trial.state == TrialState.REACHED]
    needed = {max(winners, key=lambda t: t.report_number).model_uri} if winners else set()
    needed |= {trial.model_uri for trial, recurrence in found if recurrence.state == RecurrenceState.OPEN}
    return [
        Prunable(
            PrunableKind.MODEL,
            trial.model_uri,
            recurrence.data_epoch,
            recurrence.run_id,
            recurrence.number,
            trial.batch_size,
            trial.finished_at,
            made_by=recurrence.run_id,
        )
        for trial, recurrence in found
        if trial.model_uri not in needed
    ]
