"""Waits for the turn of a new job's recurrence, and while another one makes the data that this one would make too."""

import time
from collections.abc import Callable

from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import OpenedRecurrence
from zeus_kfp.zeus_core import JobSpec

POLL_S = 10.0


def open_in_turn(
    store: StateStore,
    spec: JobSpec,
    run_id: str,
    *,
    on_knob_change: str,
    data_version: str,
    start_now: bool,
    slow_start: bool,
) -> OpenedRecurrence:
    """Open a recurrence, return once it may go on, and print why it may, must wait or may not; arguments as there."""

    def opened() -> OpenedRecurrence:
        answer = store.open_recurrence(
            spec, run_id, on_knob_change=on_knob_change, data_version=data_version, start_now=start_now
        )
        print(answer.why)
        return answer

    answer = opened()
    if answer.granted and wait(store, spec.job_id, run_id, slow_start=slow_start):
        # Whoever saw it wait may have closed it.
        return opened()
    return answer


def wait(
    store: StateStore,
    job_id: str,
    run_id: str,
    *,
    slow_start: bool = True,
    sleep: Callable[[float], object] = time.sleep,
) -> bool:
    """Return once a recurrence may go on, and whether it had to wait; what others made, it will find in KFP's cache.

    KFP's cache knows finished steps only. It ends: whoever is waited for has a lease.

    Args:
        store: The store, where the recurrence is open.
        job_id: The job's name.
        run_id: The KFP run.
        slow_start: Whether to wait for the results of earlier recurrences while the job is new.
        sleep: Waits for a time in s.
    """
    told = ""
    try:
        while why := store.why_must_wait(job_id, run_id, slow_start=slow_start):
            if why != told:
                print(why, flush=True)
                told = why
            sleep(POLL_S)
    except KeyboardInterrupt:
        # Nobody starts it again, and those behind it would wait for it.
        store.close_recurrence(job_id, run_id)
        raise
    return bool(told)
