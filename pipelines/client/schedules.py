"""Schedules that can be changed, over KFP's recurring runs, which can't.

A schedule is a family of recurring runs of one display name. Each carries a mark in its description: a generation and
the hash of what was asked for. The highest generation is the schedule; the others are what updates have replaced.

KFP deletes the pods of a recurring run's live runs together with it, and their exit handlers do not run. So an update
makes the new recurring run, then disables the old ones, and deletes one only once it has been disabled for a while and
has no live run; a call that finds such leftovers, of an update that was killed midway too, goes on from there.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from zeus_kfp.pipelines.client.api import KfpApi
from zeus_kfp.pipelines.client.records import Change, ScheduleStatus
from zeus_kfp.pipelines.client.specs import ScheduleSpec
from zeus_kfp.pipelines.client.trigger import Trigger
from zeus_kfp.zeus_core.errors import ClusterAccessError, ScheduleConflictError, UnknownScheduleError

SETTLES_AFTER = timedelta(minutes=2)
"""A run that was just being started when its recurring run was disabled is listed by then."""

_MARK = re.compile(r"zeus-kfp: schedule generation (\d+), sha256 ([0-9a-f]{64})")


class Schedules:
    """The schedules on a cluster."""

    def __init__(self, api: KfpApi, clock: Callable[[], datetime]) -> None:
        """Take the API and what tells the time."""
        self._api = api
        self._clock = clock

    def names(self) -> list[str]:
        """Return the names of this library's schedules, sorted."""
        return sorted({r.display_name for r in self._api.recurring_runs() if _mark(r)})

    def current(self, name: str) -> Any:
        """Return the recurring run that a schedule is at present.

        Raises:
            UnknownScheduleError: If there is none.
        """
        return self._family(name)[0]

    def find(self, name: str) -> Any | None:
        """Return the recurring run that a schedule is at present, or None.

        Raises:
            ScheduleConflictError: If a recurring run of that name was made by somebody else.
        """
        try:
            return self.current(name)
        except UnknownScheduleError:
            if self._api.recurring_runs(name):
                raise ScheduleConflictError(
                    f"a recurring run named {name!r} is on the cluster that this library did not make, and it is left "
                    "alone: choose another name, or delete it in the KFP UI once it has no live run"
                ) from None
            return None

    def put(self, spec: ScheduleSpec, *, paused: bool = False) -> tuple[Any, Change]:
        """Make a schedule be what is asked for, and return it with what that took.

        Args:
            spec: What is asked for.
            paused: Whether a new schedule starts paused; one that is there stays as it is.

        Raises:
            ScheduleConflictError: If the name is taken, or somebody changed the schedule at the same time.
        """
        current = self.find(spec.name)
        if current is not None and _mark_of(current)[1] == spec.digest:
            self.tidy(spec.name)
            return current, Change.UNCHANGED
        generation = 1 if current is None else _mark_of(current)[0] + 1
        made = self._api.create_recurring_run(
            spec.name,
            description=f"zeus-kfp: schedule generation {generation}, sha256 {spec.digest}",
            enabled=not paused if current is None else is_enabled(current),
            **spec.api_arguments,
        )
        if not made.recurring_run_id:
            raise ClusterAccessError(f"{self._api.host} gave the schedule {spec.name!r} no id: is it the KFP API?")
        self.tidy(spec.name)
        if self.current(spec.name).recurring_run_id != made.recurring_run_id:
            raise ScheduleConflictError(
                f"the schedule {spec.name!r} was changed by somebody else at the same time, and theirs stands: "
                "look at it, and update it again"
            )
        return made, Change.CREATED if current is None else Change.UPDATED

    def pause(self, name: str) -> None:
        """Start no more runs."""
        for recurring in self._family(name):
            if is_enabled(recurring):
                self._api.disable(recurring.recurring_run_id)

    def resume(self, name: str) -> None:
        """Start runs again; of what was missed KFP may start the latest at once, and no other."""
        self._api.enable(self.current(name).recurring_run_id)
        self.tidy(name)

    def tidy(self, name: str) -> None:
        """Disable what updates have replaced, and delete what of it is idle."""
        self._retire(self._family(name)[1:])

    def delete(self, name: str) -> tuple[str, ...]:
        """Delete a schedule but for what may have live runs, and return what it waits for.

        Raises:
            UnknownScheduleError: If there is none.
        """
        return self._retire(self._family(name))

    def status(self, name: str, change: Change | None = None) -> ScheduleStatus:
        """Return a schedule as it stands.

        Raises:
            UnknownScheduleError: If there is none.
        """
        family = self._family(name)
        spec, enabled = ScheduleSpec.of_api(family[0]), is_enabled(family[0])
        latest = [run for r in family if (run := self._api.latest_run_of(r.recurring_run_id))]
        return ScheduleStatus(
            name=name,
            recurring_run_id=family[0].recurring_run_id,
            enabled=enabled,
            when=spec.trigger.in_words(),
            pipeline_id=spec.run.pipeline_id,
            version_id=spec.run.version_id,
            max_concurrency=spec.max_concurrency,
            parameters=spec.run.parameters,
            next_run=spec.trigger.next_after(self._clock(), family[0].created_at) if enabled else None,
            last_run=max(latest, key=lambda run: run.created_at or self._clock(), default=None),
            retiring=tuple(r.recurring_run_id for r in family[1:]),
            change=change,
        )

    def _family(self, name: str) -> list[Any]:
        """Return a schedule's recurring runs, the one that it is at present first."""
        ours = [(mark, r) for r in self._api.recurring_runs(name) if (mark := _mark(r))]
        if not ours:
            raise UnknownScheduleError(
                f"no schedule {name!r} is on the cluster at {self._api.host}: list what there is"
            )
        # Two that were made at the same time have the same generation; everybody must take the same for the latest.
        ours.sort(key=lambda pair: (pair[0][0], pair[1].created_at, pair[1].recurring_run_id), reverse=True)
        return [recurring for _, recurring in ours]

    def _retire(self, family: Iterable[Any]) -> tuple[str, ...]:
        """Disable recurring runs, delete those that are idle, and return what keeps the others."""
        return tuple(kept for recurring in family if (kept := self._kept_by(recurring)))

    def _kept_by(self, recurring: Any) -> str:
        """Delete a recurring run if it is idle, disabled first, or return what keeps it."""
        recurring_run_id = recurring.recurring_run_id
        disabled_at = recurring.updated_at or recurring.created_at
        if is_enabled(recurring):
            self._api.disable(recurring_run_id)
            disabled_at = self._clock()
        live = self._api.live_runs_of(recurring_run_id)
        if live:
            return ", ".join(f"run {run.run_id} is {run.state}" for run in live)
        if not self._is_settled(recurring, disabled_at):
            return f"recurring run {recurring_run_id} was disabled a moment ago and may just have started a run"
        self._api.delete(recurring_run_id)
        return ""

    def _is_settled(self, recurring: Any, disabled_at: datetime) -> bool:
        if self._clock() - disabled_at >= SETTLES_AFTER:
            return True
        since = disabled_at - SETTLES_AFTER
        latest = self._api.latest_run_of(recurring.recurring_run_id)
        if latest and latest.finished_at and latest.finished_at > since:
            return False  # a slot that waited for this run to end may have been let in
        slot = Trigger.of_api(recurring.trigger).next_after(since, recurring.created_at)
        return slot is None or slot > disabled_at


def is_enabled(recurring: Any) -> bool:
    """Whether a recurring run starts runs."""
    told = recurring.status in ("ENABLED", "DISABLED")
    return bool(recurring.status == "ENABLED" if told else recurring.mode == "ENABLE")


def _mark(recurring: Any) -> tuple[int, str] | None:
    found = _MARK.search(recurring.description or "")
    return (int(found[1]), found[2]) if found else None


def _mark_of(recurring: Any) -> tuple[int, str]:
    mark = _mark(recurring)
    assert mark is not None, "a family holds marked recurring runs only"
    return mark
