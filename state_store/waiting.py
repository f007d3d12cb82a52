"""Whether a recurrence that was opened should wait before it goes on: for its turn, and for data that others make."""

import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlalchemy import bindparam, func, select

from zeus_kfp.state_store.learning import load_learnt
from zeus_kfp.state_store.locking import alive_until, step_lease_from
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.state_store.statements import Row, locked_job, put, required_recurrence, rows, trials_of
from zeus_kfp.state_store.tables import RECURRENCE, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.pacing import trials_at_once
from zeus_kfp.zeus_core.trial import TrialState

_LOOKED_AT = 100
"""Latest recurrences of a job that say how long its data takes."""

_OPEN = select(RECURRENCE).where(
    RECURRENCE.c.job_id == bindparam("job_id"), RECURRENCE.c.state == RecurrenceState.OPEN.value
)
_LATEST = (RECURRENCE.c.job_id == bindparam("job_id")) & (RECURRENCE.c.number > bindparam("after"))
_SAME_DATA = RECURRENCE.c.data_epoch == bindparam("data_epoch")
_MADE = (
    select(TRIAL.c.id).join(RECURRENCE, TRIAL.c.recurrence_id == RECURRENCE.c.id).where(_LATEST, _SAME_DATA).limit(1)
)
# Put in order, and cut off, by whoever reads them: asked to, SQLite would walk the job's whole history.
_OPEN_WITH_DATA = _OPEN.where(_SAME_DATA)
_USES_OF_DATA = (
    select(
        RECURRENCE.c.number,
        RECURRENCE.c.data_epoch,
        RECURRENCE.c.opened_at,
        func.min(TRIAL.c.issued_at).label("made_at"),
    )
    .join(TRIAL, TRIAL.c.recurrence_id == RECURRENCE.c.id, isouter=True)
    .where(_LATEST)
    .group_by(RECURRENCE.c.id, RECURRENCE.c.number, RECURRENCE.c.data_epoch, RECURRENCE.c.opened_at)
    .order_by(RECURRENCE.c.number)
)


def why_must_wait(transaction: Transaction, now: datetime, job_id: str, run_id: str, slow_start: bool) -> str:
    """Return why a recurrence should not go on to its data and trials yet, "" if it may; whoever asks is heard of."""
    job = locked_job(transaction, job_id)
    recurrence = required_recurrence(transaction, job_id, run_id)
    if recurrence.state != RecurrenceState.OPEN:
        return ""
    put(transaction, RECURRENCE, recurrence, lease_expires_at=step_lease_from(now, job))
    waits_its_turn = _why_not_its_turn(transaction, now, job, recurrence) if slow_start else ""
    return waits_its_turn or _why_others_make_its_data(transaction, now, job, recurrence)


def _why_not_its_turn(transaction: Transaction, now: datetime, job: Row, recurrence: Row) -> str:
    """Return why the job's earlier recurrences should come to a result first, "" if they need not.

    Of the open ones, those of the lowest numbers go on, as many as enough is known for.
    """
    by_number = sorted(rows(transaction, _OPEN, {"job_id": job.job_id}), key=lambda one: int(one.number))
    earlier = [one for one in by_number if one.number < recurrence.number]
    if not earlier:
        return ""
    at_once = trials_at_once(load_learnt(transaction, job))
    # No more are looked at than it takes: there may be hundreds.
    ahead = [pair for pair, _ in zip(_ahead(transaction, now, job, earlier), range(at_once), strict=False)]
    if len(ahead) < at_once:
        return ""
    until, first = ahead[0]
    return (
        f"job {job.job_id} is new, and what is known of it is enough for {at_once} at once: this recurrence waits for "
        f"what recurrence {first.number} of run {first.run_id} finds out, until {until:%Y-%m-%d %H:%M} UTC at most "
        "(slow_start=false waits for nobody). If that run is dead, `zeus-kfp recurrences close "
        f"{shlex.quote(job.job_id)} {shlex.quote(first.run_id)}` says so"
    )


def _ahead(transaction: Transaction, now: datetime, job: Row, earlier: list[Row]) -> Iterator[tuple[datetime, Row]]:
    """Give the recurrences that live and have not come to the target, each with the end of its lease."""
    for one in earlier:
        trials = trials_of(transaction, one)
        until = alive_until(job, one, trials, now)
        if until > now and all(trial.state != TrialState.REACHED for trial in trials):
            yield until, one


def _why_others_make_its_data(transaction: Transaction, now: datetime, job: Row, recurrence: Row) -> str:
    """Return why a recurrence should not preprocess yet, "" if it may.

    KFP's cache knows finished steps only, so that two recurrences that overlap would both make the same data. The one
    of the lower number makes it: it has, once any recurrence with that data was handed a trial, and it won't any more,
    once it has ended, its lease has passed, or it takes twice as long as it ever did: its pod tells nobody that it
    lives, and data that is made twice costs less than a slot that waits for a dead one.
    """
    same_data = {"job_id": job.job_id, "data_epoch": recurrence.data_epoch}
    if rows(transaction, _MADE, same_data | {"after": job.recurrence_count - _LOOKED_AT}):
        return ""
    users = sorted(rows(transaction, _OPEN_WITH_DATA, same_data), key=lambda user: int(user.number))
    makers = [user for user in users if user.number < recurrence.number]
    spare = _spare_of_lease(transaction, job) if makers else timedelta(0)
    ends = [(alive_until(job, maker, (), now) - spare, maker) for maker in makers]
    alive = [(end, maker) for end, maker in ends if end > now]
    if not alive:
        return ""
    until, maker = alive[0]
    return (
        f"recurrence {maker.number} of run {maker.run_id} preprocesses the same data ({recurrence.data_epoch}): this "
        f"one waits for it, until {until:%Y-%m-%d %H:%M} UTC at most. If that run is dead, `zeus-kfp recurrences close "
        f"{shlex.quote(job.job_id)} {shlex.quote(maker.run_id)}` says so"
    )


def _spare_of_lease(transaction: Transaction, job: Row) -> timedelta:
    """Return what of a step's lease is more than twice what making the data took at most, as far as that is known."""
    latest = {"job_id": job.job_id, "after": job.recurrence_count - _LOOKED_AT}
    took = _making_times(rows(transaction, _USES_OF_DATA, latest))
    if not took:
        return timedelta(0)
    return max(timedelta(seconds=job.max_step_time_s) - 2 * max(took), timedelta(0))


def _making_times(uses: list[Row]) -> list[timedelta]:
    """Return how long each first use of data took up to its first trial, of recurrences in their order."""
    times: list[timedelta] = []
    # Who made the data of the oldest one that is looked at is not known, unless it is the job's first.
    seen = {use.data_epoch for use in uses[:1] if use.number > 1}
    for use in uses:
        if use.data_epoch not in seen and use.made_at is not None:
            times.append(use.made_at - use.opened_at)
        seen.add(use.data_epoch)
    return times
