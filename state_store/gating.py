"""Whether a run may open a recurrence now: the job goes on, its period has passed or drift came, a slot is free."""

import shlex
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, bindparam, func, select

from zeus_kfp.state_store.drifting import pending_drifts
from zeus_kfp.state_store.epochs import data_is_gone, is_new_data
from zeus_kfp.state_store.locking import COUNTS, alive_until, open_count, open_recurrences
from zeus_kfp.state_store.records import JobPhase, RecurrenceState
from zeus_kfp.state_store.rows import next_due_at
from zeus_kfp.state_store.statements import Row, count, joined, labelled, put, rows, trials_of
from zeus_kfp.state_store.tables import JOB, RECURRENCE
from zeus_kfp.state_store.transaction import Transaction

MAX_SLACK = timedelta(minutes=5)
SLACK_SHARE = 0.05
"""How early a run may come: pods do not start to the second, and a nightly run that came a second early would wait
for the next night."""

_OPEN_OF_USER = (
    select(*labelled(RECURRENCE), *labelled(JOB))
    .select_from(RECURRENCE.join(JOB, RECURRENCE.c.job_id == JOB.c.job_id))
    .where(JOB.c.user == bindparam("user"), RECURRENCE.c.state == RecurrenceState.OPEN.value)
)
_COUNTED = (
    select(func.count())
    .select_from(RECURRENCE)
    .where(RECURRENCE.c.job_id == bindparam("job_id"), RECURRENCE.c.number > bindparam("counted_from"), COUNTS)
)
_LATEST_COUNTED = (
    select(func.max(RECURRENCE.c.number)).where(RECURRENCE.c.job_id == bindparam("job_id"), COUNTS).scalar_subquery()
)
_TRIED_IN_VAIN: Select[*tuple[Any, ...]] = select(
    func.count().label("times"),
    func.min(RECURRENCE.c.opened_at).label("first"),
    func.max(RECURRENCE.c.opened_at).label("latest"),
).where(
    RECURRENCE.c.job_id == bindparam("job_id"),
    RECURRENCE.c.number > func.coalesce(_LATEST_COUNTED, 0),
    # After the clock went back, one from before would keep the pauses away until the clock has caught up.
    RECURRENCE.c.opened_at <= bindparam("now"),
)


def why_not(transaction: Transaction, job: Row, now: datetime, data_version: str, start_now: bool) -> str:
    """Return why a run may open no recurrence of a job now, "" if it may; one that starts now waits for no period."""
    return (
        _why_over(transaction, job)
        or ("" if start_now else _why_not_due(transaction, job, now, data_version) or _why_later(transaction, job, now))
        or _why_no_slot(transaction, job, now)
        or _why_no_slot_of_user(transaction, job, now)
    )


def has_had_all(transaction: Transaction, job: Row) -> bool:
    """Return whether a job has had all its recurrences; those that ended before their first trial do not count."""
    # Those that count are no more than all: looked at one by one only once there are enough of them.
    if not job.num_recurrences or job.recurrence_count - job.counted_from < job.num_recurrences:
        return False
    of_job = {"job_id": job.job_id, "counted_from": job.counted_from}
    return count(transaction, _COUNTED, of_job) >= int(job.num_recurrences)


def _why_over(transaction: Transaction, job: Row) -> str:
    if job.phase == JobPhase.DELETED:
        return f"job {job.job_id} was deleted: give the new one another job_id, or purge this one's history"
    if job.ended_by_hand:
        return f"job {job.job_id} was completed by hand: `zeus-kfp jobs reopen {shlex.quote(job.job_id)}` lets it go on"
    if has_had_all(transaction, job):
        running = open_count(transaction, job)
        put(transaction, JOB, job, phase=(JobPhase.RUNNING if running else JobPhase.COMPLETED).value)
        return f"job {job.job_id} is complete: it has had its {job.num_recurrences} recurrences (num_recurrences)"
    put(transaction, JOB, job, phase=JobPhase.RUNNING.value)
    return ""


def _why_not_due(transaction: Transaction, job: Row, now: datetime, data_version: str) -> str:
    due_at = _due_at(job, now)
    if due_at is None or now >= due_at - _slack(job):
        return ""
    # A recurrence whose data was gone has trained nothing, and used up its turn.
    if data_is_gone(job) or is_new_data(job, data_version) or pending_drifts(transaction, job):
        return ""
    return (
        f"job {job.job_id} is not due: its period (period_s) is {_span(job.period_s)}, and the next recurrence is due "
        f"{due_at:%Y-%m-%d %H:%M} UTC, or with the next run after drift was signalled "
        f"(`zeus-kfp jobs signal-drift {shlex.quote(job.job_id)} --reason …`). A run with start_now=true starts at once"
    )


def _why_later(transaction: Transaction, job: Row, now: datetime) -> str:
    """Return why a job that is due waits: recurrences that end before their first trial are tried at doubling pauses.

    What is broken for good, such as preprocessing, would otherwise be started by every tick of the schedule.
    """
    if not job.period_s:
        return ""
    (vain,) = rows(transaction, _TRIED_IN_VAIN, {"job_id": job.job_id, "now": now})
    if not vain.times:
        return ""
    again_at = vain.latest + min(vain.latest - vain.first, timedelta(seconds=job.period_s))
    if now >= again_at:
        return ""
    return (
        f"job {job.job_id} is due, but its latest {vain.times} recurrences ended before their first trial: it tries "
        f"again from {again_at:%Y-%m-%d %H:%M} UTC on. A run with start_now=true starts at once"
    )


def _due_at(job: Row, now: datetime) -> datetime | None:
    due_at = next_due_at(job)
    if due_at is None or job.period_began_at <= now:
        return due_at
    # The clock went back. One period from there: neither a start at once, nor a wait until the clock has caught up.
    noticed_at: datetime = job.clock_back_at or now
    return noticed_at + timedelta(seconds=job.period_s)


def _slack(job: Row) -> timedelta:
    return min(MAX_SLACK, timedelta(seconds=job.period_s * SLACK_SHARE))


def _span(period_s: float) -> str:
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if period_s % length_s == 0:
            return f"{period_s / length_s:g} {unit}"
    return f"{period_s:g} s"


def _why_no_slot(transaction: Transaction, job: Row, now: datetime) -> str:
    if open_count(transaction, job) < job.max_concurrent_recurrences:
        return ""
    oldest = open_recurrences(transaction, job)[0]
    lease = alive_until(job, oldest, trials_of(transaction, oldest), now)
    return (
        f"job {job.job_id} has as many recurrences running as max_concurrent_recurrences allows "
        f"({job.max_concurrent_recurrences}): this run trains nothing. The oldest is recurrence {oldest.number} of run "
        f"{oldest.run_id}; if that run is dead, its slot is free from {lease:%Y-%m-%d %H:%M} UTC on, "
        f"or at once after `zeus-kfp recurrences close {shlex.quote(job.job_id)} {shlex.quote(oldest.run_id)}`"
    )


def _why_no_slot_of_user(transaction: Transaction, job: Row, now: datetime) -> str:
    cap = job.max_concurrent_recurrences_per_user
    if not cap:
        return ""
    # The job's row keeps out runs of the same job only. Always taken after it, so that nobody waits in a circle.
    transaction.lock_name(job.user)
    alive = _alive_of_user(transaction, job.user, now)
    if len(alive) < cap:
        return ""
    shown = ", ".join(f"recurrence {r.number} of {r.job_id}" for r in alive[:3]) + (", …" if len(alive) > 3 else "")
    return (
        f"user {job.user!r} has {len(alive)} recurrences running and max_concurrent_recurrences_per_user of job "
        f"{job.job_id} allows {cap}: this run trains nothing. Running: {shown}. The next run after one of them has "
        "ended is granted"
    )


def _alive_of_user(transaction: Transaction, user: str, now: datetime) -> list[Row]:
    """Return the recurrences of a user's jobs that count as alive; the dead of other jobs are those jobs' to close."""
    pairs = joined(transaction, _OPEN_OF_USER, RECURRENCE, JOB, {"user": user})
    return [r for r, job in pairs if alive_until(job, r, trials_of(transaction, r), now) > now]
