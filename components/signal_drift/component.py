"""Signal drift: let a job's next run open a recurrence before its period is over."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def signal_drift(job_id: str, reason: str, value: float = 0.0):
    """Signal that a job's data or behaviour has changed; exactly one recurrence of it takes the signal.

    While it waits for one, the same reason again changes nothing.

    Args:
        job_id: Name of the job, which a recurrence has registered.
        reason: What has changed, in words, up to 255 characters.
        value: A figure that goes with it, for people.
    """
    from zeus_kfp.state_store import StateStore

    with StateStore.from_environment() as store:
        drift = store.signal_drift(job_id, reason, value=float(value))
    print(
        f"drift of job {job_id} waits for its next recurrence since {drift.signalled_at:%Y-%m-%d %H:%M} UTC: {reason}"
    )
