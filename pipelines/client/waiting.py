"""Waits for a run to end."""

from collections.abc import Callable

from zeus_kfp.pipelines.client.api import KfpApi
from zeus_kfp.pipelines.client.records import RunStatus
from zeus_kfp.zeus_core.errors import ClusterUnavailableError, RunNotFinishedError
from zeus_kfp.zeus_core.validation import number

_OUTAGE_S = 600.0
"""An API that is away no longer than this does not end a wait."""


def wait_for(
    api: KfpApi,
    run_id: str,
    *,
    timeout_s: float | None,
    poll_s: float,
    progress: Callable[[RunStatus], object],
    sleep: Callable[[float], None],
    monotonic: Callable[[], float],
) -> RunStatus:
    """Return a run once it has ended, well or not.

    kfp's own wait never ends for a run that was cancelled, and ends at the first fault of the network.

    Args:
        api: Where the run is.
        run_id: The run.
        timeout_s: Time after which waiting is given up, in s; None waits for ever.
        poll_s: Time between two looks, in s.
        progress: Told the run's status whenever it has changed.
        sleep: Waits for a time in s.
        monotonic: Tells the time in s.

    Raises:
        RunNotFinishedError: If the time is over; the run goes on.
        ClusterError: If the API fails for ten minutes, or refuses.
    """
    poll_s = number("poll_s", poll_s, above=0)
    limit_s = None if timeout_s is None else number("timeout_s", timeout_s, at_least=0)
    begin_s = seen_s = monotonic()
    told: RunStatus | None = None
    while True:
        try:
            run, seen_s = api.run(run_id), monotonic()
        except ClusterUnavailableError:
            if monotonic() - seen_s > _OUTAGE_S:
                raise
        else:
            if run != told:
                progress(run)
                told = run
            if run.is_over:
                return run
        waited_s = monotonic() - begin_s
        if limit_s is not None and waited_s + poll_s > limit_s:
            state = told.state if told else "unknown"
            raise RunNotFinishedError(
                f"the run {run_id} had not ended after {waited_s:.0f} s (state {state}); it goes on: wait longer, or "
                "terminate it in the KFP UI"
            )
        sleep(poll_s)
