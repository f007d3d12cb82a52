"""The few calls of KFP's API that the client needs: every page, every fault told clearly, reads tried again."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any

import kfp

from zeus_kfp.pipelines.client.faults import told_clearly, told_time, with_retries
from zeus_kfp.pipelines.client.records import RunStatus
from zeus_kfp.zeus_core.errors import ClusterRefusedError, InvalidValueError

PAGE = 100
LIVE_STATES = ("PENDING", "RUNNING", "CANCELING", "PAUSED", "RUNTIME_STATE_UNSPECIFIED")


class KfpApi:
    """KFP's API over a kfp.Client.

    A read may be repeated, and so may enabling, disabling and deleting. What makes something is tried once, since a
    lost answer would make it twice; but for a run, which is looked for before it is tried again.
    """

    def __init__(self, client: kfp.Client, *, namespace: str | None, sleep: Callable[[float], None]) -> None:
        """Take a client that is logged in, a namespace or the client's own, and how to wait between two tries."""
        self._client = client
        self._namespace = namespace or client.get_user_namespace() or None
        self._sleep = sleep
        self.host: str = client._existing_config.host

    def told_time(self) -> datetime | None:
        """Return the cluster's time as its last answer told it, None where it told none."""
        return told_time(self._client)

    # Pipelines

    def pipeline_id(self, name: str) -> str | None:
        """Return the id of the pipeline of a name in this namespace, or None."""
        found = self._all(
            f"look up the pipeline {name!r}",
            "pipelines",
            self._client.list_pipelines,
            filter=_equal(display_name=name),
            namespace=self._namespace,
        )
        return next((p.pipeline_id for p in found if p.display_name == name), None)

    def versions(self, pipeline_id: str) -> Iterator[Any]:
        """Yield a pipeline's versions, the newest first."""
        return self._all(
            "list the pipeline's versions",
            "pipeline_versions",
            self._client.list_pipeline_versions,
            pipeline_id=pipeline_id,
            sort_by="created_at desc",
        )

    def version(self, pipeline_id: str, version_id: str) -> Any:
        """Return one version of a pipeline."""
        return self._read("read the pipeline's version", self._client.get_pipeline_version, pipeline_id, version_id)

    def upload_pipeline(self, path: str, name: str, description: str) -> str:
        """Upload a new pipeline with its first version and return its id."""
        arguments = {"pipeline_name": name, "description": description, "namespace": self._namespace}
        made = self._once(f"upload the pipeline {name!r}", self._client.upload_pipeline, path, **arguments)
        return str(made.pipeline_id)

    def upload_version(self, path: str, version_name: str, pipeline_id: str, description: str) -> str:
        """Upload a new version of a pipeline and return its id."""
        made = self._once(
            f"upload the version {version_name!r}",
            self._client.upload_pipeline_version,
            path,
            pipeline_version_name=version_name,
            pipeline_id=pipeline_id,
            description=description,
        )
        return str(made.pipeline_version_id)

    def experiment_id(self, name: str) -> str:
        """Return the id of the experiment of a name, made where there is none."""
        arguments = {"experiment_name": name, "namespace": self._namespace}
        try:
            found = self._read(f"look up the experiment {name!r}", self._client.get_experiment, **arguments)
        except ValueError as error:
            if not str(error).startswith("No experiment"):
                raise ClusterRefusedError(f"can't look up the experiment {name!r} at {self.host}: {error}") from error
            what = f"make the experiment {name!r}"
            found = self._once(what, self._client.create_experiment, name, namespace=self._namespace)
        return str(found.experiment_id)

    # Recurring runs

    def recurring_runs(self, name: str | None = None) -> list[Any]:
        """Return the recurring runs, of one name or all."""
        found = self._all(
            "list the recurring runs",
            "recurring_runs",
            self._client.list_recurring_runs,
            namespace=self._namespace,
            sort_by="created_at desc",
            filter=_equal(display_name=name) if name is not None else None,
        )
        return [r for r in found if name is None or r.display_name == name]

    def create_recurring_run(self, name: str, **arguments: Any) -> Any:
        """Make a recurring run; see kfp.Client.create_recurring_run."""
        return self._once(
            f"make the schedule {name!r}",
            self._client.create_recurring_run,
            job_name=name,
            no_catchup=True,
            **arguments,
        )

    def enable(self, recurring_run_id: str) -> None:
        """Let a recurring run start runs."""
        self._read("resume the schedule", self._client.enable_recurring_run, recurring_run_id)

    def disable(self, recurring_run_id: str) -> None:
        """Let a recurring run start no more runs; those under way go on. One that is gone starts none."""
        with _gone_is_done():
            self._read("pause the schedule", self._client.disable_recurring_run, recurring_run_id)

    def delete(self, recurring_run_id: str) -> None:
        """Delete a recurring run, and with it the pods of its live runs: make sure that it has none."""
        with _gone_is_done():
            self._read("delete the schedule", self._client.delete_recurring_run, recurring_run_id)

    # Runs

    def latest_run_of(self, recurring_run_id: str) -> RunStatus | None:
        """Return the latest run that a recurring run started, or None."""
        return next(self._runs_of(recurring_run_id, page_size=1), None)

    def live_runs_of(self, recurring_run_id: str) -> list[RunStatus]:
        """Return the runs that a recurring run started and that have not ended."""
        # A schedule has many runs of some seconds while one trains for days, so it is not enough to look at the latest.
        found = {run.run_id: run for run in islice(self._runs_of(recurring_run_id), PAGE)}
        for state in LIVE_STATES:
            found |= {run.run_id: run for run in self._runs_of(recurring_run_id, state=state)}
        return [run for run in found.values() if not run.is_over]

    def last_end_of(self, recurring_run_id: str) -> datetime | None:
        """Return when the last run that a recurring run started and that has ended did so, or None."""
        run = next(self._runs_of(recurring_run_id, page_size=1, sort_by="finished_at desc"), None)
        return run.finished_at if run else None

    def _runs_of(
        self, recurring_run_id: str, page_size: int = PAGE, sort_by: str = "created_at desc", **equal: str
    ) -> Iterator[RunStatus]:
        found = self._all(
            "list the schedule's runs",
            "runs",
            self._client.list_runs,
            page_size=page_size,
            namespace=self._namespace,
            sort_by=sort_by,
            filter=_equal(recurring_run_id=recurring_run_id, **equal),
        )
        return (run_status(run) for run in found if run.recurring_run_id == recurring_run_id)

    def create_run(self, name: str, **arguments: Any) -> RunStatus:
        """Start a run, once even where an answer is lost; see kfp.Client.run_pipeline."""
        before = {run.run_id for run in self._runs_named(name, self._read)}
        tries = 0

        def start() -> RunStatus:
            nonlocal tries
            tries += 1
            # One that was started is listed, though nobody was told so.
            made = [run for run in self._runs_named(name, self._once) if run.run_id not in before] if tries > 1 else []
            if made:
                return made[0]
            return run_status(
                self._once(f"start the run {name!r}", self._client.run_pipeline, job_name=name, **arguments)
            )

        return with_retries(start, sleep=self._sleep)

    def _runs_named(self, name: str, ask: Callable[..., Any]) -> list[RunStatus]:
        found = self._all(
            f"look for the run {name!r}",
            "runs",
            self._client.list_runs,
            ask=ask,
            namespace=self._namespace,
            sort_by="created_at desc",
            filter=_equal(display_name=name),
        )
        return [run_status(run) for run in found if run.display_name == name]

    def run(self, run_id: str) -> RunStatus:
        """Return a run as it stands."""
        if not isinstance(run_id, str) or not run_id or "/" in run_id:
            raise InvalidValueError(f"{run_id!r} is no run's id")
        return run_status(self._read(f"read the run {run_id}", self._client.get_run, run_id))

    # Common

    def _once(self, what: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with told_clearly(what, self.host):
            return call(*args, **kwargs)

    def _read(self, what: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return with_retries(lambda: self._once(what, call, *args, **kwargs), sleep=self._sleep)

    def _all(
        self, what: str, field: str, call: Callable[..., Any], ask: Callable[..., Any] | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        token = ""
        while True:
            page = (ask or self._read)(what, call, page_token=token, **{"page_size": PAGE} | kwargs)
            yield from getattr(page, field) or ()
            token = page.next_page_token
            if not token:
                return


@contextmanager
def _gone_is_done() -> Iterator[None]:
    """Take what somebody else deleted meanwhile for done."""
    try:
        yield
    except ClusterRefusedError as error:
        if getattr(error.__cause__, "status", None) != 404:
            raise


def run_status(run: Any) -> RunStatus:
    """Return what a V2beta1Run says."""
    tasks = (run.run_details and run.run_details.task_details) or []
    ended = [task for task in tasks if task.end_time is not None and task.end_time.year > 1970]
    finished = run.finished_at if run.finished_at and run.finished_at.year > 1970 else None
    state = run.state or "PENDING"
    return RunStatus(run.run_id, run.display_name or "", state, run.created_at, finished, len(ended), len(tasks))


def _equal(**values: str) -> str:
    predicates = [{"operation": "EQUALS", "key": key, "stringValue": value} for key, value in values.items()]
    return json.dumps({"predicates": predicates})
