"""What the client tells about pipelines, runs and schedules."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from zeus_kfp.pipelines.client.trigger import rfc3339

_ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"}


@dataclass(frozen=True, slots=True)
class UploadedPipeline:
    """A version of a pipeline on the cluster; ``is_new`` tells whether this call put it there."""

    name: str
    pipeline_id: str
    version_id: str
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run of a pipeline.

    Attributes:
        state: KFP's state in capitals, such as RUNNING. Whether a recurrence reached its target is for the store to
            say, not for this.
        tasks_done: Steps that have ended, and tasks_known those that were started at all.
    """

    run_id: str
    name: str
    state: str
    created_at: datetime | None = None
    finished_at: datetime | None = None
    tasks_done: int = 0
    tasks_known: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state in _ENDED

    @property
    def succeeded(self) -> bool:
        """Whether the run ended well."""
        return self.state == "SUCCEEDED"

    def in_words(self) -> str:
        """Return it in one line."""
        steps = f", {self.tasks_done} of {self.tasks_known} steps so far" if self.tasks_known else ""
        return f"run {self.run_id} ({self.name}): {self.state}{steps}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {name: _json(value) for name, value in asdict(self).items()}


class Change(StrEnum):
    """What a call did to a schedule."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule as it stands.

    Attributes:
        enabled: Whether it starts runs; a paused one does not.
        when: Its trigger, in words.
        next_run: When it starts the next run, or None where it is paused or over.
        last_run: Its latest run, by whichever of its recurring runs.
        retiring: Recurring runs that an update replaced and that may still have a live run.
        change: What this call did, where it did something.
        is_deleted: Whether it was deleted and only waits for its last run.
    """

    name: str
    recurring_run_id: str
    enabled: bool
    when: str
    pipeline_id: str
    version_id: str
    max_concurrency: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    next_run: datetime | None = None
    last_run: RunStatus | None = None
    retiring: tuple[str, ...] = ()
    change: Change | None = None
    is_deleted: bool = False

    def in_words(self) -> str:
        """Return it in a few lines."""
        change = " (deleted, but for its last run)" if self.is_deleted else f" ({self.change})" if self.change else ""
        upcoming = (
            rfc3339(self.next_run)
            if self.next_run
            else ("none" if self.enabled or self.is_deleted else "none while paused")
        )
        lines = [f"{self.name}{change}: {self.when}", f"next run: {upcoming}"]
        lines += [f"last run: {self.last_run.in_words()}"] if self.last_run else []
        lines += [f"replaced, until its run has ended: {old}" for old in self.retiring]
        return "\n  ".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {name: _json(value) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deleted schedule still waits for, such as a live run, in words; nothing once it is gone."""

    name: str
    waits_for: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return not self.waits_for

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {name: _json(value) for name, value in asdict(self).items()}


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return rfc3339(value) if isinstance(value, datetime) else value
