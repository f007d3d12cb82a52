"""What the server keeps: pipelines, versions, experiments, recurring runs and runs, with KFP's measured oddities.

Oddities kept: names of pipelines, versions and experiments are unique and those of recurring runs are not;
concurrency outside 1 to 10 is clamped without a word; a recurring run can't be changed; deleting one takes its
live runs' pods away and leaves them RUNNING for ever.
"""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import yaml

Record = dict[str, Any]


class RefusedError(Exception):
    """An answer with a status of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Books:
    """The server's state; the clock is a parameter."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.clock = clock
        self.pipelines: dict[str, Record] = {}
        self.versions: dict[str, Record] = {}
        self.experiments: dict[str, Record] = {}
        self.recurring_runs: dict[str, Record] = {}
        self.runs: dict[str, Record] = {}
        self.killed: list[str] = []
        self._number = itertools.count(1)

    # pipelines

    def upload_pipeline(self, name: str, description: str, package: bytes, namespace: str = "") -> Record:
        if any((p["name"], p["namespace"]) == (name, namespace) for p in self.pipelines.values()):
            raise RefusedError(409, "Failed to create a pipeline and a pipeline version")
        spec = _spec(package)
        pipeline = self._record("pipeline_id", name=name, display_name=name, description=description)
        pipeline["namespace"] = namespace
        self.pipelines[pipeline["pipeline_id"]] = pipeline
        self._add_version(pipeline["pipeline_id"], name, description, spec)
        return pipeline

    def upload_version(self, pipeline_id: str, name: str, description: str, package: bytes) -> Record:
        if pipeline_id not in self.pipelines:
            raise RefusedError(400, "Failed to create a pipeline version")
        if any((v["name"], v["pipeline_id"]) == (name, pipeline_id) for v in self.versions.values()):
            raise RefusedError(409, "Failed to create a pipeline version")
        return self._add_version(pipeline_id, name, description, _spec(package))

    def _add_version(self, pipeline_id: str, name: str, description: str, spec: Record) -> Record:
        version = self._record("pipeline_version_id", name=name, display_name=name, description=description)
        version |= {"pipeline_id": pipeline_id, "pipeline_spec": spec}
        self.versions[version["pipeline_version_id"]] = version
        return version

    # experiments

    def create_experiment(self, body: Record) -> Record:
        names = {(e["display_name"], e.get("namespace", "")) for e in self.experiments.values()}
        if (body["display_name"], body.get("namespace", "")) in names:
            raise RefusedError(409, "Already exist error: the experiment exists")
        experiment = self._record("experiment_id", **body) | {"storage_state": "AVAILABLE"}
        self.experiments[experiment["experiment_id"]] = experiment
        return experiment

    # recurring runs

    def create_recurring_run(self, body: Record) -> Record:
        self._check_source(body)
        concurrency = min(10, max(1, int(body.get("max_concurrency", 1))))
        recurring = self._record("recurring_run_id", **body)
        recurring |= {"max_concurrency": str(concurrency), "updated_at": recurring["created_at"]}
        recurring["status"] = "ENABLED" if body.get("mode") == "ENABLE" else "DISABLED"
        for kind in recurring["trigger"].values():
            if "interval_second" in kind:
                kind["interval_second"] = str(kind["interval_second"])
        self.recurring_runs[recurring["recurring_run_id"]] = recurring
        return recurring

    def switch(self, recurring_run_id: str, enabled: bool) -> Record:
        recurring = self.one(self.recurring_runs, recurring_run_id)
        recurring["status"] = "ENABLED" if enabled else "DISABLED"
        recurring["mode"] = "ENABLE" if enabled else "DISABLE"
        recurring["updated_at"] = self._now()
        return {}

    def delete_recurring_run(self, recurring_run_id: str) -> Record:
        self.one(self.recurring_runs, recurring_run_id)
        del self.recurring_runs[recurring_run_id]
        live = [run["run_id"] for run in self.live_runs() if run.get("recurring_run_id") == recurring_run_id]
        self.killed += live
        return {}

    def tick(self, recurring_run_id: str) -> Record:
        """Start a run of a recurring run, as its controller does when a slot of the schedule has come."""
        recurring = self.one(self.recurring_runs, recurring_run_id)
        assert recurring["status"] == "ENABLED", "a disabled recurring run starts nothing"
        body = {key: recurring[key] for key in ("experiment_id", "pipeline_version_reference", "runtime_config")}
        run = self.create_run(body | {"display_name": f"Run of {recurring['display_name']}"})
        run["recurring_run_id"] = recurring_run_id
        run["scheduled_at"] = run["created_at"]
        return run

    # runs

    def create_run(self, body: Record) -> Record:
        self._check_source(body)
        run = self._record("run_id", **body) | {"state": "PENDING", "storage_state": "AVAILABLE"}
        self.runs[run["run_id"]] = run
        return run

    def live_runs(self) -> list[Record]:
        """Return the runs that have not ended."""
        return [run for run in self.runs.values() if not _ended(run)]

    def set_state(self, run_id: str, state: str) -> None:
        """Let a run go on to a state."""
        run = self.runs[run_id]
        run["state"] = state
        if _ended(run):
            run["finished_at"] = self._now()

    # common

    @staticmethod
    def one(table: dict[str, Record], key: str) -> Record:
        if key not in table:
            raise RefusedError(404, f"ResourceNotFoundError: {key} not found")
        return table[key]

    def _check_source(self, body: Record) -> None:
        reference = body.get("pipeline_version_reference")
        if reference is not None:
            version = self.one(self.versions, reference["pipeline_version_id"])
            self.one(self.experiments, body["experiment_id"])
            declared = version["pipeline_spec"]["pipeline_spec"]["root"].get("inputDefinitions", {})
            unknown = set(body["runtime_config"].get("parameters", {})) - set(declared.get("parameters", {}))
            if unknown:
                raise RefusedError(400, f"Invalid input error: unknown parameters {sorted(unknown)}")

    def _record(self, key: str, **fields: Any) -> Record:
        return {key: f"{key.removesuffix('_id')}-{next(self._number)}", "created_at": self._now(), **fields}

    def _now(self) -> str:
        return self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")


def _ended(run: Record) -> bool:
    return run["state"] in ("SUCCEEDED", "FAILED", "SKIPPED", "CANCELED")


def _spec(package: bytes) -> Record:
    try:
        spec, *platform = list(yaml.load_all(package, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        if "root" not in spec:
            raise ValueError("no root")
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise RefusedError(400, f"InvalidInputError: unknown template format: {error}") from error
    return {"pipeline_spec": spec} | ({"platform_spec": platform[0]} if platform else {})
