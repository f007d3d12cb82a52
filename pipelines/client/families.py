"""The recurring runs that make up a schedule: those of one display name that carry this library's mark.

The mark stands in the description: a generation and the hash of what was asked for. The highest generation is the
schedule; the others are what updates have replaced. KFP lets nobody change a recurring run but enable, disable and
delete it, so that a schedule that was deleted while a run is live gets a last generation, which never starts a run and
says so: without it, what is left could not be told from a schedule that was paused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from zeus_kfp.zeus_core.errors import UnknownScheduleError

_MARK = re.compile(r"zeus-kfp: schedule generation (\d+), (?:sha256 ([0-9a-f]{64})|deleted)")


@dataclass(frozen=True, slots=True)
class Mark:
    """What the description of a recurring run says.

    Attributes:
        generation: 1 for the first, one more with every change.
        digest: Hash of what was asked for; None tells that the schedule was deleted.
    """

    generation: int
    digest: str | None

    @classmethod
    def of(cls, recurring: Any) -> Self | None:
        """Return the mark of a recurring run, None where this library did not make it."""
        found = _MARK.search(recurring.description or "")
        return cls(int(found[1]), found[2]) if found else None

    def __str__(self) -> str:
        """Return it as a description."""
        what = "deleted" if self.digest is None else f"sha256 {self.digest}"
        return f"zeus-kfp: schedule generation {self.generation}, {what}"


@dataclass(frozen=True, slots=True)
class Family:
    """The recurring runs of one schedule.

    Attributes:
        name: The schedule's.
        latest: The recurring run of the highest generation.
        mark: Its mark.
        replaced: The others that may have runs, the newest first.
        tombstones: Those of deletions, but for the latest.
    """

    name: str
    latest: Any
    mark: Mark
    replaced: tuple[Any, ...]
    tombstones: tuple[Any, ...]

    @classmethod
    def of(cls, recurring_runs: Iterable[Any], name: str) -> Self | None:
        """Return the family of a name among recurring runs, None where there is none."""
        named = [r for r in recurring_runs if r.display_name == name]
        ours = [(mark, r) for r in named if (mark := Mark.of(r))]
        if not ours:
            return None
        # Two that were made at the same time have the same generation; everybody must take the same for the latest.
        ours.sort(key=lambda pair: (pair[0].generation, pair[1].created_at, pair[1].recurring_run_id), reverse=True)
        (mark, latest), *others = ours
        replaced = tuple(r for m, r in others if m.digest is not None)
        return cls(name, latest, mark, replaced, tuple(r for m, r in others if m.digest is None))

    @property
    def is_deleted(self) -> bool:
        """Whether the schedule was deleted, and waits for a run."""
        return self.mark.digest is None

    @property
    def current(self) -> Any:
        """The recurring run that the schedule is.

        Raises:
            UnknownScheduleError: If it was deleted.
        """
        if self.is_deleted:
            raise UnknownScheduleError(
                f"the schedule {self.name!r} was deleted, and what is left of it goes with its last run: make it anew, "
                "or call delete again to see what it waits for"
            )
        return self.latest

    @property
    def with_runs(self) -> tuple[Any, ...]:
        """All that may have runs, the newest first."""
        return self.replaced if self.is_deleted else (self.latest, *self.replaced)


def is_enabled(recurring: Any) -> bool:
    """Whether a recurring run starts runs."""
    told = recurring.status in ("ENABLED", "DISABLED")
    return bool(recurring.status == "ENABLED" if told else recurring.mode == "ENABLE")
