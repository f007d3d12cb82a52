"""Runs of a pipeline on a cluster: upload, start, wait."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import kfp

from zeus_kfp.pipelines.client.api import KfpApi
from zeus_kfp.pipelines.client.arguments import checked_arguments, given
from zeus_kfp.pipelines.client.connection import connect
from zeus_kfp.pipelines.client.faults import limit_requests
from zeus_kfp.pipelines.client.package import PipelinePackage, declared_parameters
from zeus_kfp.pipelines.client.records import RunStatus, UploadedPipeline
from zeus_kfp.pipelines.client.specs import RunSpec
from zeus_kfp.pipelines.client.uploading import upload
from zeus_kfp.pipelines.client.waiting import wait_for
from zeus_kfp.zeus_core.validation import integer, text

EXPERIMENT = "Default"


class RunClient:
    """Uploads pipelines, starts runs of them and waits for their end."""

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
            namespace = namespace or os.environ.get("ZEUS_KFP_NAMESPACE", "").strip() or None
            client = connect(timeout_s, namespace=namespace, **arguments)
        limit_requests(client, timeout_s)
        self._clock, self._monotonic, self._sleep = clock, monotonic, sleep
        self._api = KfpApi(client, namespace=namespace, sleep=sleep)

    def upload(self, pipeline: Any, name: str | None = None) -> UploadedPipeline:
        """Put a pipeline on the cluster, as a new version where its content changed.

        Args:
            pipeline: A pipeline of the Python DSL, the path of its YAML, or "recurring_training" or
                "recurring_training_gpu".
            name: Its name on the cluster; its own where None.
        """
        return upload(self._api, PipelinePackage.of(pipeline), name)

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
        arguments = checked_arguments(package.declared, given(parameters))
        run_name = text("the run's name", run_name or f"{package.name} {self._clock():%Y-%m-%d %H:%M:%S}")
        run = self._run_spec(package, arguments, experiment, service_account, pipeline_root)
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

    def _run_spec(
        self,
        package: PipelinePackage,
        arguments: Mapping[str, Any],
        experiment: str | None,
        service_account: str | None,
        pipeline_root: str | None,
    ) -> RunSpec:
        empty = RunSpec("", "", "", arguments)
        experiment = EXPERIMENT if experiment is None else experiment
        return self._changed_run(empty, package, experiment, service_account, pipeline_root)

    def _changed_run(
        self,
        run: RunSpec,
        package: PipelinePackage | None,
        experiment: str | None,
        service_account: str | None,
        pipeline_root: str | None,
    ) -> RunSpec:
        """Return a run with what is given; what is None stays."""
        if experiment is not None:
            text("the experiment", experiment, at_most=128)
        asked = {"service_account": service_account, "pipeline_root": pipeline_root}
        given: dict[str, Any] = {name: text(name, value) for name, value in asked.items() if value is not None}
        if package is not None:
            uploaded = upload(self._api, package)
            given |= {"pipeline_id": uploaded.pipeline_id, "version_id": uploaded.version_id}
        if experiment is not None:
            given["experiment_id"] = self._api.experiment_id(experiment)
        return replace(run, **given)

    def _declared(self, run: RunSpec) -> Mapping[str, Any]:
        version = self._api.version(run.pipeline_id, run.version_id)
        held = version.pipeline_spec
        return declared_parameters(held.get("pipeline_spec", held))
