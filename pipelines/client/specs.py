"""What is asked of the cluster: a run, or a schedule of runs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from zeus_kfp.pipelines.client.trigger import Trigger


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What a run is started from, by the clock or by hand."""

    experiment_id: str
    pipeline_id: str
    version_id: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    service_account: str | None = None
    pipeline_root: str | None = None

    @property
    def api_arguments(self) -> dict[str, Any]:
        """What kfp.Client.run_pipeline takes, less the name."""
        return {
            "experiment_id": self.experiment_id,
            "pipeline_id": self.pipeline_id,
            "version_id": self.version_id,
            "params": dict(self.parameters),
            "service_account": self.service_account,
            "pipeline_root": self.pipeline_root,
        }


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """What is asked for. Two specs with the same digest are the same schedule."""

    name: str
    run: RunSpec
    trigger: Trigger
    max_concurrency: int = 1

    @property
    def api_arguments(self) -> dict[str, Any]:
        """What kfp.Client.create_recurring_run takes, less the name."""
        when = self.trigger.api_arguments | {"max_concurrency": self.max_concurrency}
        return self.run.api_arguments | when

    @property
    def digest(self) -> str:
        """Hash of all that is asked for."""
        return hashlib.sha256(json.dumps(self.api_arguments, sort_keys=True).encode()).hexdigest()

    def means(self, other: "ScheduleSpec", now: datetime) -> bool:
        """Whether another spec, as the API gives it back, starts the same runs from now on."""
        # What nobody asked for, the API may have filled in.
        run = replace(
            self.run,
            service_account=self.run.service_account or other.run.service_account,
            pipeline_root=self.run.pipeline_root or other.run.pipeline_root,
        )
        return replace(self, run=run, trigger=other.trigger) == other and self.trigger.means(other.trigger, now)

    @classmethod
    def of_api(cls, recurring: Any) -> Self:
        """Return the spec that a recurring run was made from."""
        reference, runtime = recurring.pipeline_version_reference, recurring.runtime_config
        run = RunSpec(
            experiment_id=recurring.experiment_id,
            pipeline_id=reference.pipeline_id,
            version_id=reference.pipeline_version_id,
            parameters=runtime.parameters or {},
            service_account=recurring.service_account or None,
            pipeline_root=runtime.pipeline_root or None,
        )
        trigger = Trigger.of_api(recurring.trigger)
        return cls(recurring.display_name, run, trigger, int(recurring.max_concurrency))
