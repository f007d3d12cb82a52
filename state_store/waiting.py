"""Whether a recurrence that was opened should wait before it goes on: for its turn, and for data that others make."""

import shlex
from datetime import datetime, timedelta

from sqlalchemy import bindparam, func, select

from zeus_kfp.state_store.learning import load_learnt
from zeus_kfp.state_store.locking import IS_OPEN, alive_until, open_recurrences, step_lease_from
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.state_store.statements import Row, locked_job, put, required_recurrence, rows
from zeus_kfp.state_store.tables import RECURRENCE, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.pacing import trials_at_once
from zeus_kfp.zeus_core.trial import TrialState

_LOOKED_AT = 100
"""Latest recurrences of a job that say how long its data takes."""

_SILENCE = timedelta(hours=1)
"""How long nothing may be heard of a recurrence that waits: it asks every few seconds, unless its pod starts again."""

_OF_LIFE = ("recurrence_id", "state", "report_number", "issued_at", "lease_expires_at", "finished_at")
# Of each trial what says whether its recurrence lives: there may be hundreds.
_TRIALS_OF_OPEN = (
    select(*(TRIAL.c[name] for name in _OF_LIFE))
    .join(RECURRENCE, TRIAL.c.recurrence_id == RECURRENCE.c.id)
    .where(IS_OPEN)
)
_LATEST = (RECURRENCE.c.job_id == bindparam("job_id")) & (RECURRENCE.c.number > bindparam("after"))
_SAME_DATA = RECURRENCE.c.data_epoch == bindparam("data_epoch")
_MADE = (
    select(TRIAL.c.id).join(RECURRENCE, TRIAL.c.recurrence_id == RECURRENCE.c.id).where(_LATEST, _SAME_DATA).limit(1)
)
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
    waits_its_turn = _why_not_its_turn(transaction, now, job, recurrence) if slow_start else ""
    why = waits_its_turn or _why_others_make_its_data(transaction, now, job, recurrence)
    lease = step_lease_from(now, job)
    put(transaction, RECURRENCE, recurrence, lease_expires_at=min(lease, now + _SILENCE) if why else lease)
    return why


def _why_not_its_turn(transaction: Transaction, now: datetime, job: Row, recurrence: Row) -> str:
    """Return why the job's earlier recurrences should come to a result first, "" if they need not.

    Of the open ones, those of the lowest numbers go on, as many as enough is known for.
    """
    earlier = [one for one in open_recurrences(transaction, job) if one.number < recurrence.number]
    if not earlier:
        return ""
    at_once = trials_at_once(load_learnt(transaction, job))
    ahead = _ahead(transaction, now, job, earlier) if len(earlier) >= at_once else []
    if len(ahead) < at_once:
        return ""
    until, first = ahead[0]
    return (
        f"job {job.job_id} is new, and what is known of it is enough for {at_once} at once: this recurrence waits for "
        f"what recurrence {first.number} of run {first.run_id} finds out, until {until:%Y-%m-%d %H:%M} UTC at most "
        "(slow_start=false waits for nobody). If that run is dead, `zeus-kfp recurrences close "
        f"{shlex.quote(job.job_id)} {shlex.quote(first.run_id)}` says so"
    )


def _ahead(transaction: Transaction, now: datetime, job: Row, earlier: list[Row]) -> list[tuple[datetime, Row]]:
    """Return the recurrences that live and have not come to the target, each with the end of its lease."""
    trials: dict[int, list[Row]] = {}
    for trial in rows(transaction, _TRIALS_OF_OPEN, {"job_id": job.job_id}):
        trials.setdefault(trial.recurrence_id, []).append(trial)
    reached = {id_ for id_, own in trials.items() if any(trial.state == TrialState.REACHED for trial in own)}
    pairs = [(alive_until(job, one, trials.get(one.id, ()), now), one) for one in earlier if one.id not in reached]
    return [(until, one) for until, one in pairs if until > now]


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
    users = [one for one in open_recurrences(transaction, job) if one.data_epoch == recurrence.data_epoch]
    makers = [user for user in users if user.number < recurrence.number]
    spare = _spare_of_lease(transaction, job) if makers else timedelta(0)
    leases = [(alive_until(job, maker, (), now), maker) for maker in makers]
    # One that waits itself has not begun, and nothing of its lease to spare.
    ends = [(lease if lease <= now + _SILENCE else lease - spare, maker) for lease, maker in leases]
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
