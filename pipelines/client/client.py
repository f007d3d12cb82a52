"""The client: recurring training on a cluster, by the names of schedules."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

from zeus_kfp.pipelines.client.arguments import checked_arguments, given
from zeus_kfp.pipelines.client.package import PipelinePackage
from zeus_kfp.pipelines.client.records import Deletion, RunStatus, ScheduleStatus
from zeus_kfp.pipelines.client.runs import EXPERIMENT, RunClient
from zeus_kfp.pipelines.client.schedules import Schedules
from zeus_kfp.pipelines.client.specs import ScheduleSpec
from zeus_kfp.pipelines.client.trigger import Trigger
from zeus_kfp.zeus_core.errors import InvalidValueError, ScheduleConflictError, UnknownScheduleError
from zeus_kfp.zeus_core.validation import integer, number, text, truth

MOST_CONCURRENT = 10
"""KFP runs no more of one recurring run at a time, and lowers a larger number without a word."""


START_NOW = "start_now"
"""The parameter by which a run starts a recurrence though the job's period has not passed."""


class RecurringTrainingClient(RunClient):
    """Schedules and runs of recurring training on a Kubeflow Pipelines cluster.

        client = RecurringTrainingClient(host="https://kfp.example.com")
        client.create_or_update_schedule("nightly", pipeline, cron="0 0 3 * * *", parameters={...})

    Every call may be repeated: what is already as it was asked for is left alone. No call ends a live recurrence.
    """

    @cached_property
    def _schedules(self) -> Schedules:
        return Schedules(self._api, self._clock)

    def create_or_update_schedule(
        self,
        name: str,
        pipeline: Any,
        *,
        cron: str | None = None,
        every: Any = None,
        start: str | datetime | None = None,
        end: str | datetime | None = None,
        parameters: Mapping[str, Any] | None = None,
        max_concurrency: int = 1,
        experiment: str = EXPERIMENT,
        service_account: str | None = None,
        pipeline_root: str | None = None,
        paused: bool | None = None,
    ) -> ScheduleStatus:
        """Make the schedule of a name be this, and return it as it stands then.

        A live recurrence goes on. An interval goes on in its rhythm, and nothing is made up for, be its start past.

        Args:
            name: The schedule's name.
            pipeline: As in upload.
            cron: Six fields in UTC, seconds first: "0 0 3 * * *" is every night at three.
            every: An interval instead: "6h", "1d12h", a timedelta, or seconds.
            start: No run before this time; an interval counts from it, and its first run comes one interval after.
            end: No run after this time.
            parameters: Arguments of the pipeline, by name, each of its type.
            max_concurrency: Runs that may be under way at once, 1 to 10.
            experiment: KFP's experiment that groups the runs; made where there is none.
            service_account: Kubernetes service account of the runs' pods.
            pipeline_root: Where the runs keep their artifacts.
            paused: Whether it starts no runs; None leaves a schedule that is there as it is, and starts a new one.

        Raises:
            InvalidValueError: If anything given can't be used; nothing was changed then.
            ScheduleConflictError: If the name is taken, or somebody changed the schedule at the same time.
            ClusterError: If the API fails or refuses it.
        """
        name = _checked_name(name)
        if paused is not None:
            truth("paused", paused)
        trigger = self._trigger(cron, every, start, end)
        package = PipelinePackage.of(pipeline)
        arguments = checked_arguments(package.declared, given(parameters))
        concurrency = _concurrency(max_concurrency)
        _check_of_schedule(arguments)
        self._schedules.find(name)  # a name that is taken is refused before anything is uploaded
        run = self._run_spec(package, arguments, experiment, service_account, pipeline_root)
        return self._schedules.put(ScheduleSpec(name, run, trigger, concurrency), paused=paused)

    def create_schedule(self, name: str, pipeline: Any, **options: Any) -> ScheduleStatus:
        """Make a new schedule; see create_or_update_schedule.

        Raises:
            ScheduleConflictError: If a schedule of that name is there.
        """
        family = self._schedules.find(_checked_name(name))
        if family is None or family.is_deleted:
            return self.create_or_update_schedule(name, pipeline, **options)
        raise ScheduleConflictError(f"a schedule {name!r} is already there: update it, or choose another name")

    def update_schedule(
        self,
        name: str,
        *,
        pipeline: Any = None,
        cron: str | None = None,
        every: Any = None,
        start: str | datetime | None = None,
        end: str | datetime | None = None,
        parameters: Mapping[str, Any] | None = None,
        max_concurrency: int | None = None,
        experiment: str | None = None,
        service_account: str | None = None,
        pipeline_root: str | None = None,
    ) -> ScheduleStatus:
        """Change what is given of a schedule, and return it as it stands then; whatever is not named stays.

        Args:
            name: The schedule.
            pipeline: Another pipeline, or a new version of it.
            cron: A new trigger.
            every: A new trigger.
            start: No run before this time; "none" takes the start away.
            end: No run after this time; "none" takes the end away.
            parameters: Arguments to change; the others stay.
            max_concurrency: Runs that may be under way at once, 1 to 10.
            experiment: KFP's experiment that groups the runs; made where there is none.
            service_account: Kubernetes service account of the runs' pods.
            pipeline_root: Where the runs keep their artifacts.

        Raises:
            UnknownScheduleError: If there is none of that name.
            InvalidValueError: If anything given can't be used; nothing was changed then.
            ClusterError: If the API fails or refuses it.
        """
        spec = ScheduleSpec.of_api(self._schedules.current(name))
        if any(value is not None for value in (cron, every, start, end)):
            trigger = spec.trigger.changed(cron=cron, every=every, start=start, end=end)
            trigger.check_rate(self._clock())
            spec = replace(spec, trigger=trigger)
        if max_concurrency is not None:
            spec = replace(spec, max_concurrency=_concurrency(max_concurrency))
        package = None if pipeline is None else PipelinePackage.of(pipeline)
        declared = package.declared if package else self._declared(spec.run)
        arguments = checked_arguments(declared, {**spec.run.parameters, **given(parameters)})
        _check_of_schedule(arguments)
        run = self._changed_run(
            replace(spec.run, parameters=arguments), package, experiment, service_account, pipeline_root
        )
        return self._schedules.put(replace(spec, run=run))

    def schedule(self, name: str) -> ScheduleStatus:
        """Return a schedule as it stands."""
        return self._schedules.status(name)

    def list_schedules(self) -> list[ScheduleStatus]:
        """Return the schedules that this library made, by name."""
        return self._schedules.all()

    def pause(self, name: str) -> ScheduleStatus:
        """Start no more runs; those under way go on."""
        self._schedules.pause(name)
        return self._schedules.status(name)

    def resume(self, name: str) -> ScheduleStatus:
        """Start runs again; none of those that were missed while it was paused is made up for."""
        self._schedules.resume(name)
        return self._schedules.status(name)

    def delete(self, name: str, *, timeout_s: float = 0, poll_s: float = 10) -> Deletion:
        """Delete a schedule once it is idle, and return what it still waits for.

        It starts no more runs from now on. While a recurrence is under way, what belongs to it stays: call again
        later, or give a time to wait.
        """
        limit_s, poll_s = number("timeout_s", timeout_s, at_least=0), number("poll_s", poll_s, above=0)
        waits_for = self._schedules.delete(name)
        begin_s = self._monotonic()
        while waits_for and self._monotonic() - begin_s + poll_s <= limit_s:
            self._sleep(poll_s)
            try:
                waits_for = self._schedules.delete(name)
            except UnknownScheduleError:  # somebody else deleted the rest
                waits_for = ()
        return Deletion(name, waits_for)

    def declared_parameters(self, name: str, pipeline: Any = None) -> Mapping[str, Any]:
        """Return the parameters that a schedule's pipeline declares, or another pipeline for it, by name."""
        if pipeline is not None:
            return PipelinePackage.of(pipeline).declared
        return self._declared(ScheduleSpec.of_api(self._schedules.current(name)).run)

    def run_now(self, name: str, parameters: Mapping[str, Any] | None = None, *, if_due: bool = False) -> RunStatus:
        """Start one run of a schedule's pipeline now, with its parameters but for those given.

        It counts as one of the job's recurrences; the schedule itself goes on as before, or stays paused.

        Args:
            name: The schedule.
            parameters: Arguments to change for this run; the others stay.
            if_due: Whether it trains only where the job's period has passed or drift was signalled, as a run of the
                schedule would. Where not, it needs a free slot and nothing else.
        """
        run = ScheduleSpec.of_api(self._schedules.current(name)).run
        declared = self._declared(run)
        now = {} if if_due or START_NOW not in declared else {START_NOW: True}
        run = replace(run, parameters=checked_arguments(declared, {**run.parameters, **now, **given(parameters)}))
        return self._api.create_run(f"{name} {self._clock():%Y-%m-%d %H:%M:%S} by hand", **run.api_arguments)

    def _trigger(self, cron: str | None, every: Any, start: Any, end: Any) -> Trigger:
        trigger = Trigger.of(cron=cron, every=every, start=start, end=end)
        trigger.check_rate(self._clock())
        return trigger


def _check_of_schedule(arguments: Mapping[str, Any]) -> None:
    if arguments.get(START_NOW):
        raise InvalidValueError(
            f"{START_NOW}=true in a schedule would let each of its runs start a recurrence, whatever the job's period: "
            "set period_s to 0 for that, or start a single run by hand"
        )


def _checked_name(name: Any) -> str:
    return text("the schedule's name", name, at_most=128)


def _concurrency(value: int) -> int:
    return integer("max_concurrency", value, at_least=1, at_most=MOST_CONCURRENT)
