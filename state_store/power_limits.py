"""The power limit that earlier trials found best for a batch size, kept in its arm row."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, func, select

from zeus_kfp.state_store.rows import profile_of
from zeus_kfp.state_store.statements import Row, put_arms, rows
from zeus_kfp.state_store.tables import PROFILE, TRIAL
from zeus_kfp.state_store.transaction import Transaction
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.power.selectors import best_known_limit_w
from zeus_kfp.zeus_core.profile import Phase, Profile

_LATEST = 200
"""Profile rows that are looked at: more than any sweep has, so that an old history costs nothing."""

_IS_TRAINING = (PROFILE.c.phase == Phase.TRAIN.value) & PROFILE.c.power_limit_w.is_not(None)
# A trial that only used the limit measured whole epochs, waits for the loader and all: not what a sweep measures.
_SWEEPING = select(PROFILE.c.trial_id).where(_IS_TRAINING, PROFILE.c.job_id == bindparam("job_id"))
_SWEEPING = _SWEEPING.group_by(PROFILE.c.trial_id).having(func.count() > 1)
# A sweep that was cut short has not seen the limits that may be better: only those count that led to a choice.
_SWEEP = (
    select(PROFILE)
    .join(TRIAL, (PROFILE.c.trial_id == TRIAL.c.id) & TRIAL.c.power_limit_w.is_not(None))
    .where(PROFILE.c.job_id == bindparam("job_id"), PROFILE.c.batch_size == bindparam("batch_size"))
    .where(_IS_TRAINING, PROFILE.c.trial_id.in_(_SWEEPING))
    .order_by(PROFILE.c.id.desc())
    .limit(_LATEST)
)


def learn_limit(transaction: Transaction, job: Row, spec: JobSpec, profiles: Sequence[Profile]) -> None:
    """Choose the best power limit of the batch sizes that were just profiled."""
    profiled = {profile.batch_size for profile in profiles if profile.power_limit_w is not None}
    put_arms(transaction, job, {size: _best(transaction, job, spec, size) for size in sorted(profiled)})


def learn_limits_again(transaction: Transaction, job: Row, spec: JobSpec) -> None:
    """Choose the best power limit of every batch size anew, since what is best may have changed."""
    put_arms(transaction, job, {size: _best(transaction, job, spec, size) for size in spec.batch_sizes})


def _best(transaction: Transaction, job: Row, spec: JobSpec, batch_size: int) -> dict[str, Any]:
    found = rows(transaction, _SWEEP, {"job_id": job.job_id, "batch_size": batch_size})
    sweep = [profile_of(row) for row in reversed(found)]
    if not sweep or (not job.rated_power_w and spec.eta_knob < 1):
        return {"power_limit_w": None, "power_limit_accelerator": ""}
    limit_w = best_known_limit_w(
        sweep,
        batch_size=batch_size,
        accelerator=sweep[-1].accelerator,
        accelerator_count=sweep[-1].accelerator_count,
        eta_knob=spec.eta_knob,
        max_power_w=job.rated_power_w,
        objective=spec.power_objective,
    )
    return {"power_limit_w": limit_w, "power_limit_accelerator": "" if limit_w is None else sweep[-1].accelerator}
