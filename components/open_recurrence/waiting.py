"""Waits while another recurrence of the job makes the data that this one would make too."""

import time
from collections.abc import Callable

from zeus_kfp.state_store import StateStore

POLL_S = 10.0


def wait_for_data(
    store: StateStore, job_id: str, run_id: str, *, sleep: Callable[[float], object] = time.sleep
) -> None:
    """Return once a recurrence may preprocess, or will find what it needs in KFP's cache.

    KFP's cache knows finished steps only. It ends: whoever is waited for has a lease.

    Args:
        store: The store, where the recurrence is open.
        job_id: The job's name.
        run_id: The KFP run.
        sleep: Waits for a time in s.
    """
    told = ""
    while why := store.why_data_must_wait(job_id, run_id):
        if why != told:
            print(why, flush=True)
            told = why
        sleep(POLL_S)
