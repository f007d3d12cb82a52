"""Deletes recurring runs that are idle, and only those.

KFP deletes the pods of a recurring run's live runs together with it, and their exit handlers do not run. A run may
also be on its way: KFP's controller starts it some seconds after its time, or once a slot is free, and the API lists it
later still. So a recurring run is deleted once it is disabled, lists no live run, and nothing can be on its way.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from zeus_kfp.pipelines.client.api import KfpApi
from zeus_kfp.pipelines.client.families import is_enabled
from zeus_kfp.pipelines.client.trigger import Trigger

SETTLES_AFTER = timedelta(minutes=2)
"""A run that was just being started when its recurring run was disabled is listed by then."""


class Retiring:
    """Disables recurring runs, and deletes them once they are idle."""

    def __init__(self, api: KfpApi, clock: Callable[[], datetime]) -> None:
        """Take the API and what tells the cluster's time."""
        self._api = api
        self._clock = clock
        self._disabled_at: dict[str, datetime] = {}

    def retire(self, recurring_runs: Iterable[Any]) -> tuple[str, ...]:
        """Disable recurring runs, delete those that are idle, the oldest first, and return what keeps the others."""
        found = list(recurring_runs)[::-1]
        for recurring in found:
            self._disable(recurring)
        return tuple(kept for recurring in found if (kept := self._kept_by(recurring)))

    def _disable(self, recurring: Any) -> None:
        key = recurring.recurring_run_id
        if is_enabled(recurring):
            self._api.disable(key)
            self._disabled_at[key] = self._clock()
        # KFP changes this time with every report of its controller: it was disabled then at the latest.
        since = recurring.updated_at or recurring.created_at
        self._disabled_at.setdefault(key, since)

    def _kept_by(self, recurring: Any) -> str:
        """Delete a recurring run if it is idle, or return what keeps it."""
        key = recurring.recurring_run_id
        live = self._api.live_runs_of(key)
        if live:
            return ", ".join(f"run {run.run_id} is {run.state}" for run in live)
        if not self._is_settled(recurring):
            return f"recurring run {key} was disabled a moment ago and may just have started a run"
        self._api.delete(key)
        return ""

    def _is_settled(self, recurring: Any) -> bool:
        now, disabled_at = self._clock(), self._disabled_at[recurring.recurring_run_id]
        if now - disabled_at >= SETTLES_AFTER:
            return True
        since = disabled_at - SETTLES_AFTER
        ended_at = self._api.last_end_of(recurring.recurring_run_id)
        if ended_at and ended_at > since:
            return False  # a slot that waited for this run to end may have been let in
        slot = Trigger.of_api(recurring.trigger).next_after(since, recurring.created_at)
        return slot is None or slot > disabled_at
