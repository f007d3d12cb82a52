"""Schedules that can be changed, over KFP's recurring runs, which can't.

An update makes the new recurring run first, then disables those that it replaces, and deletes one only once it is idle;
a call that finds such leftovers, of an update that was killed midway too, goes on from there.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from zeus_kfp.pipelines.client.api import KfpApi
from zeus_kfp.pipelines.client.families import Family, Mark, is_enabled
from zeus_kfp.pipelines.client.records import Change, ScheduleStatus
from zeus_kfp.pipelines.client.retiring import Retiring
from zeus_kfp.pipelines.client.specs import ScheduleSpec
from zeus_kfp.zeus_core.errors import ClusterAccessError, ScheduleConflictError, UnknownScheduleError


class Schedules:
    """The schedules on a cluster."""

    def __init__(self, api: KfpApi, clock: Callable[[], datetime]) -> None:
        """Take the API and what tells the time where the cluster doesn't."""
        self._api = api
        self._clock = clock
        self._retiring = Retiring(api, self._now)

    def current(self, name: str) -> Any:
        """Return the recurring run that a schedule is at present.

        Raises:
            UnknownScheduleError: If there is none, or it was deleted.
        """
        return self._family(name).current

    def find(self, name: str) -> Family | None:
        """Return a schedule's recurring runs, or None.

        Raises:
            ScheduleConflictError: If a recurring run of that name was made by somebody else.
        """
        found = self._api.recurring_runs(name)
        family = Family.of(found, name)
        if family is None and found:
            raise ScheduleConflictError(
                f"a recurring run named {name!r} is on the cluster that this library did not make, and it is left "
                "alone: choose another name, or delete it in the KFP UI once it has no live run"
            )
        return family

    def put(self, spec: ScheduleSpec, *, paused: bool | None = None) -> ScheduleStatus:
        """Make a schedule be what is asked for, and return it as it stands then.

        Args:
            spec: What is asked for.
            paused: Whether it starts no runs; None leaves one that is there as it is.

        Raises:
            ScheduleConflictError: If the name is taken, or somebody changed the schedule at the same time.
        """
        family = self.find(spec.name)
        if family is None or family.is_deleted:
            generation = family.mark.generation + 1 if family else 1
            self._make(spec, Mark(generation, spec.digest), enabled=not paused, begin=None)
            return self.status(spec.name, Change.CREATED)
        if not self._is_so(family, spec):
            self._replace(family, spec, enabled=is_enabled(family.latest) if paused is None else not paused)
            return self.status(spec.name, Change.UPDATED)
        if paused is None or paused is not is_enabled(family.latest):
            self._tidy(spec.name)
            return self.status(spec.name, Change.UNCHANGED)
        (self.pause if paused else self.resume)(spec.name)
        return self.status(spec.name, Change.UPDATED)

    def pause(self, name: str) -> None:
        """Start no more runs."""
        family = self._family(name)
        for recurring in (family.current, *family.replaced):
            if is_enabled(recurring):
                self._api.disable(recurring.recurring_run_id)

    def resume(self, name: str) -> None:
        """Start runs again, and none of those that were missed.

        KFP would start the latest of them at once, so that where one was missed a new recurring run takes over.
        """
        family = self._family(name)
        current = family.current
        if is_enabled(current):
            self._tidy(name)
            return
        spec = ScheduleSpec.of_api(current)
        last = self._api.latest_run_of(current.recurring_run_id)
        since = max(current.created_at, last.created_at) if last and last.created_at else current.created_at
        due = spec.trigger.next_after(since, current.created_at)
        if due is not None and due <= self._now():
            self._replace(family, spec, enabled=True)
        else:
            self._api.enable(current.recurring_run_id)
            self._tidy(name)

    def delete(self, name: str) -> tuple[str, ...]:
        """Delete a schedule but for what may have live runs, and return what it waits for.

        Raises:
            UnknownScheduleError: If there is none.
        """
        family = self._family(name)
        kept = self._retiring.retire(family.with_runs)
        if not kept:
            self._bury(family)
        elif not family.is_deleted:
            spec, mark = ScheduleSpec.of_api(family.latest), Mark(family.mark.generation + 1, None)
            self._make(spec, mark, enabled=False, begin=None)
        return kept

    def status(self, name: str, change: Change | None = None) -> ScheduleStatus:
        """Return a schedule as it stands.

        Raises:
            UnknownScheduleError: If there is none.
        """
        return self._status(self._family(name), change)

    def all(self) -> list[ScheduleStatus]:
        """Return this library's schedules as they stand, by name."""
        found = self._api.recurring_runs()
        families = (Family.of(found, name) for name in sorted({r.display_name for r in found}))
        return [self._status(family, None) for family in families if family]

    def _status(self, family: Family, change: Change | None) -> ScheduleStatus:
        latest, now = family.latest, self._now()
        spec, enabled = ScheduleSpec.of_api(latest), is_enabled(latest) and not family.is_deleted
        runs = [run for r in family.with_runs if (run := self._api.latest_run_of(r.recurring_run_id))]
        return ScheduleStatus(
            name=family.name,
            recurring_run_id=latest.recurring_run_id,
            enabled=enabled,
            is_deleted=family.is_deleted,
            when=spec.trigger.in_words(now),
            pipeline_id=spec.run.pipeline_id,
            version_id=spec.run.version_id,
            max_concurrency=spec.max_concurrency,
            parameters=spec.run.parameters,
            next_run=spec.trigger.next_after(now, latest.created_at) if enabled else None,
            last_run=max(runs, key=lambda run: run.created_at or now, default=None),
            retiring=tuple(r.recurring_run_id for r in family.replaced),
            change=change,
        )

    def _is_so(self, family: Family, spec: ScheduleSpec) -> bool:
        """Whether a schedule is what is asked for, by its mark or else by what KFP gives back."""
        held = ScheduleSpec.of_api(family.current)
        return family.mark.digest == spec.digest or spec.means(held, self._now())

    def _replace(self, family: Family, spec: ScheduleSpec, *, enabled: bool) -> None:
        held = ScheduleSpec.of_api(family.current)
        begin = held.trigger.start or family.current.created_at
        self._make(spec, Mark(family.mark.generation + 1, spec.digest), enabled=enabled, begin=begin)

    def _make(self, spec: ScheduleSpec, mark: Mark, *, enabled: bool, begin: datetime | None) -> None:
        """Make a recurring run, and let it take the place of those before it."""
        sent = replace(spec, trigger=spec.trigger.as_sent(self._now(), begin))
        arguments = sent.api_arguments | {"description": str(mark), "enabled": enabled}
        made = self._api.create_recurring_run(spec.name, **arguments)
        if not made.recurring_run_id:
            raise ClusterAccessError(f"{self._api.host} gave the schedule {spec.name!r} no id: is it the KFP API?")
        self._tidy(spec.name)
        if self._family(spec.name).latest.recurring_run_id != made.recurring_run_id:
            raise ScheduleConflictError(
                f"the schedule {spec.name!r} was changed by somebody else at the same time, and theirs stands: "
                "look at it, and update it again"
            )

    def _tidy(self, name: str) -> None:
        """Disable what updates have replaced, and delete what of it is idle."""
        family = self._family(name)
        if not self._retiring.retire(family.replaced) and not family.is_deleted:
            self._bury(family)

    def _bury(self, family: Family) -> None:
        """Delete what stands for deletions that are over."""
        for tombstone in (*family.tombstones, *([family.latest] if family.is_deleted else [])):
            self._api.delete(tombstone.recurring_run_id)

    def _family(self, name: str) -> Family:
        family = Family.of(self._api.recurring_runs(name), name)
        if family is None:
            raise UnknownScheduleError(
                f"no schedule {name!r} is on the cluster at {self._api.host}: list what there is"
            )
        return family

    def _now(self) -> datetime:
        # A clock that differs from the cluster's would take a run that is on its way for one long listed.
        return self._api.told_time() or self._clock()
