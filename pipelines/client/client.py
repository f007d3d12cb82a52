"""The client: recurring training on a cluster, by the names of schedules."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import kfp

from zeus_kfp.pipelines.client.api import KfpApi
from zeus_kfp.pipelines.client.arguments import checked_arguments
from zeus_kfp.pipelines.client.connection import connect
from zeus_kfp.pipelines.client.faults import limit_requests
from zeus_kfp.pipelines.client.package import PipelinePackage, declared_parameters
from zeus_kfp.pipelines.client.records import Deletion, RunStatus, ScheduleStatus, UploadedPipeline
from zeus_kfp.pipelines.client.schedules import Schedules
from zeus_kfp.pipelines.client.specs import RunSpec, ScheduleSpec
from zeus_kfp.pipelines.client.trigger import Trigger
from zeus_kfp.pipelines.client.uploading import upload
from zeus_kfp.pipelines.client.waiting import wait_for
from zeus_kfp.zeus_core.errors import ScheduleConflictError
from zeus_kfp.zeus_core.validation import integer, text

EXPERIMENT = "Default"
MOST_CONCURRENT = 10
"""KFP runs no more of one recurring run at a time, and lowers a larger number without a word."""


class RecurringTrainingClient:
    """Schedules and runs of recurring training on a Kubeflow Pipelines cluster.

        client = RecurringTrainingClient(host="https://kfp.example.com")
        client.create_or_update_schedule("nightly", pipeline, cron="0 0 3 * * *", parameters={...})

    Every call may be repeated: what is already as it was asked for is left alone. No call ends a live recurrence.
    """

    def __init__(
        self,
        client: kfp.Client | None = None,
        *,
        namespace: str | None = None,
        timeout_s: int = 60,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        **arguments: Any,
    ) -> None:
        """Connect.

        Args:
            client: A kfp.Client, logged in as kfp allows; None makes one of the arguments and the environment.
            namespace: Namespace, in a multi-user installation; None takes the client's own.
            timeout_s: Time that a request may take, in s.
            clock: Tells the time.
            monotonic: Tells a time in s that never jumps.
            sleep: Waits for a time in s.
            **arguments: What kfp.Client takes, where none is given: host, existing_token, cookies, ….

        Raises:
            ClusterError: If the API does not answer, or doesn't let us in.
        """
        timeout_s = integer("timeout_s", timeout_s, at_least=1, at_most=3600)
        if client is None:
            client = connect(**arguments | ({"namespace": namespace} if namespace else {}))
        limit_requests(client, timeout_s)
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep
        self._api = KfpApi(client, namespace=namespace, sleep=sleep)
        self._schedules = Schedules(self._api, clock)

    def upload(self, pipeline: Any, name: str | None = None) -> UploadedPipeline:
        """Put a pipeline on the cluster, as a new version where its content changed.

        Args:
            pipeline: A pipeline of the Python DSL, the path of its YAML, or "recurring_training" or
                "recurring_training_gpu".
            name: Its name on the cluster; its own where None.
        """
        return upload(self._api, PipelinePackage.of(pipeline), name)

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
        paused: bool = False,
    ) -> ScheduleStatus:
        """Make the schedule of a name be this, and return it as it stands then.

        A live recurrence goes on. A schedule that is paused stays so. What was missed meanwhile is never caught up.

        Args:
            name: The schedule's name.
            pipeline: As in upload.
            cron: Six fields in UTC, seconds first: "0 0 3 * * *" is every night at three.
            every: An interval instead: "6h", "1d12h", a timedelta, or seconds.
            start: No run before this time.
            end: No run after this time.
            parameters: Arguments of the pipeline, by name, each of its type.
            max_concurrency: Runs that may be under way at once, 1 to 10.
            experiment: KFP's experiment that groups the runs; made where there is none.
            service_account: Kubernetes service account of the runs' pods.
            pipeline_root: Where the runs keep their artifacts.
            paused: Whether a new schedule starts paused.

        Raises:
            InvalidValueError: If anything given can't be used; nothing was changed then.
            ScheduleConflictError: If the name is taken, or somebody changed the schedule at the same time.
            ClusterError: If the API fails or refuses it.
        """
        name = text("the schedule's name", name, at_most=128)
        trigger = self._trigger(cron, every, start, end)
        package = PipelinePackage.of(pipeline)
        arguments = checked_arguments(package.declared, parameters or {})
        concurrency = _concurrency(max_concurrency)
        self._schedules.find(name)
        run = self._run_spec(package, arguments, experiment, service_account, pipeline_root)
        return self._put(ScheduleSpec(name, run, trigger, concurrency), paused)

    def create_schedule(self, name: str, pipeline: Any, **options: Any) -> ScheduleStatus:
        """Make a new schedule; see create_or_update_schedule.

        Raises:
            ScheduleConflictError: If a schedule of that name is there that is not already this.
        """
        current = self._schedules.find(name)
        if current is None:
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
    ) -> ScheduleStatus:
        """Change what is given of a schedule, and return it as it stands then.

        Args:
            name: The schedule.
            pipeline: Another pipeline, or a new version of it.
            cron: A new trigger; a new start or end needs it, or every, too.
            every: A new trigger.
            start: No run before this time.
            end: No run after this time.
            parameters: Arguments to change; the others stay.
            max_concurrency: Runs that may be under way at once, 1 to 10.

        Raises:
            UnknownScheduleError: If there is none of that name.
            InvalidValueError: If anything given can't be used; nothing was changed then.
            ClusterError: If the API fails or refuses it.
        """
        spec = ScheduleSpec.of_api(self._schedules.current(name))
        if any(value is not None for value in (cron, every, start, end)):
            spec = replace(spec, trigger=self._trigger(cron, every, start, end))
        if max_concurrency is not None:
            spec = replace(spec, max_concurrency=_concurrency(max_concurrency))
        package = None if pipeline is None else PipelinePackage.of(pipeline)
        declared = package.declared if package else self._declared(spec.run)
        arguments = checked_arguments(declared, {**spec.run.parameters, **(parameters or {})})
        run = replace(spec.run, parameters=arguments)
        if package is not None:
            uploaded = upload(self._api, package)
            run = replace(run, pipeline_id=uploaded.pipeline_id, version_id=uploaded.version_id)
        return self._put(replace(spec, run=run), paused=False)

    def schedule(self, name: str) -> ScheduleStatus:
        """Return a schedule as it stands."""
        return self._schedules.status(name)

    def list_schedules(self) -> list[ScheduleStatus]:
        """Return the schedules that this library made, by name."""
        return [self._schedules.status(name) for name in self._schedules.names()]

    def pause(self, name: str) -> ScheduleStatus:
        """Start no more runs; those under way go on."""
        self._schedules.pause(name)
        return self._schedules.status(name)

    def resume(self, name: str) -> ScheduleStatus:
        """Start runs again; those missed while it was paused are not caught up."""
        self._schedules.resume(name)
        return self._schedules.status(name)

    def delete(self, name: str, *, timeout_s: float = 0, poll_s: float = 10) -> Deletion:
        """Delete a schedule once it is idle, and return what it still waits for.

        It starts no more runs from now on. While a recurrence is under way, what belongs to it stays: call again
        later, or give a time to wait.
        """
        waits_for = self._schedules.delete(name)
        begin_s = self._monotonic()
        while waits_for and self._monotonic() - begin_s + poll_s <= timeout_s:
            self._sleep(poll_s)
            waits_for = self._schedules.delete(name)
        return Deletion(name, waits_for)

    def run_now(self, name: str, parameters: Mapping[str, Any] | None = None) -> RunStatus:
        """Start one run of a schedule's pipeline now, with its parameters but for those given.

        It counts as one of the job's recurrences; the schedule itself goes on as before, or stays paused.
        """
        run = ScheduleSpec.of_api(self._schedules.current(name)).run
        if parameters:
            arguments = checked_arguments(self._declared(run), {**run.parameters, **parameters})
            run = replace(run, parameters=arguments)
        return self._api.create_run(f"{name} {self._clock():%Y-%m-%d %H:%M:%S} by hand", **run.api_arguments)

    def submit(
        self,
        pipeline: Any,
        parameters: Mapping[str, Any] | None = None,
        *,
        run_name: str | None = None,
        experiment: str = EXPERIMENT,
        service_account: str | None = None,
        pipeline_root: str | None = None,
    ) -> RunStatus:
        """Start one run of a pipeline, without a schedule; see create_or_update_schedule for the arguments."""
        package = PipelinePackage.of(pipeline)
        arguments = checked_arguments(package.declared, parameters or {})
        run = self._run_spec(package, arguments, experiment, service_account, pipeline_root)
        run_name = run_name or f"{package.name} {self._clock():%Y-%m-%d %H:%M:%S}"
        return self._api.create_run(run_name, **run.api_arguments)

    def wait(
        self,
        run_id: str,
        *,
        timeout_s: float | None = None,
        poll_s: float = 10,
        progress: Callable[[RunStatus], object] = lambda run: None,
    ) -> RunStatus:
        """Return a run once it has ended, well or not; see waiting.wait_for."""
        return wait_for(
            self._api,
            run_id,
            timeout_s=timeout_s,
            poll_s=poll_s,
            progress=progress,
            sleep=self._sleep,
            monotonic=self._monotonic,
        )

    def _put(self, spec: ScheduleSpec, paused: bool) -> ScheduleStatus:
        _, change = self._schedules.put(spec, paused=paused)
        return self._schedules.status(spec.name, change)

    def _run_spec(
        self,
        package: PipelinePackage,
        arguments: Mapping[str, Any],
        experiment: str,
        service_account: str | None,
        pipeline_root: str | None,
    ) -> RunSpec:
        uploaded = upload(self._api, package)
        experiment_id = self._api.experiment_id(experiment)
        ids = (experiment_id, uploaded.pipeline_id, uploaded.version_id)
        return RunSpec(*ids, arguments, service_account, pipeline_root)

    def _trigger(self, cron: str | None, every: Any, start: Any, end: Any) -> Trigger:
        trigger = Trigger.of(cron=cron, every=every, start=start, end=end)
        trigger.check_rate(self._clock())
        return trigger

    def _declared(self, run: RunSpec) -> Mapping[str, Any]:
        version = self._api.version(run.pipeline_id, run.version_id)
        held = version.pipeline_spec
        return declared_parameters(held.get("pipeline_spec", held))


def _concurrency(value: int) -> int:
    return integer("max_concurrency", value, at_least=1, at_most=MOST_CONCURRENT)
