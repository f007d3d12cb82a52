"""The books of the attempts at one trial: a pod that is evicted is started again with the same arguments.

Every attempt keeps one file in a folder that belongs to the trial. It is replaced again and again while the attempt
lasts, with what it has taken so far, and at the end with its outcome; so whoever comes later knows what was spent,
and that nothing is left to do. Without a folder that outlives the pod, an attempt is always the first.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.training.files import write_atomically
from zeus_kfp.zeus_core.training.instrument import NOTHING_SPENT, Spent
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialPlan
from zeus_kfp.zeus_core.validation import number

FOLDER = "zeus-kfp-attempts"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, as its file tells.

    Attributes:
        energy_j: Energy in J that it took; None if not known.
        time_s: Time in s that it took.
        outcome: Its outcome as JSON; "" while it runs or if it was killed.
        best_metric: Best metric that it reported; None without any.
    """

    energy_j: float | None
    time_s: float
    outcome: str = ""
    best_metric: float | None = None

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            InvalidValueError: If one is out of its range.
        """
        number("time_s", self.time_s, at_least=0)
        if self.energy_j is not None:
            number("energy_j", self.energy_j, at_least=0)
        if self.best_metric is not None:
            number("best_metric", self.best_metric)
        if self.outcome:
            TrialOutcome.from_json(self.outcome)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the attempt in a file.

        Raises:
            InvalidValueError: If it holds none.
        """
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as error:
            raise InvalidValueError(f"{path} holds no attempt: {error}") from None


class Ledger:
    """The attempts at a trial, one of them ours."""

    def __init__(self, folder: Path, attempt: str, warn: Callable[[str], None]) -> None:
        """Read the earlier attempts.

        Args:
            folder: The trial's folder; made if it is missing.
            attempt: Name of this attempt.
            warn: Gets a line for people where the folder can't be used.
        """
        self._warn = warn
        self._folder = folder
        self.earlier: tuple[Attempt, ...] = ()
        self._own: Path | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files = sorted(folder.glob("*.json"))
            self._own = _unused(folder, _safe(attempt))
        except OSError as error:
            warn(f"warning: attempts at this trial can't be kept in {folder}: {error}")
            return
        self.earlier = tuple(found for file in files if (found := self._read(file)))

    def begin(self) -> None:
        """Enter this attempt."""
        self.beat(NOTHING_SPENT)

    @property
    def is_energy_known(self) -> bool:
        """Whether the energy of every earlier attempt is known."""
        return all(attempt.energy_j is not None for attempt in self.earlier)

    def spent_earlier(self, rated_power_w: float) -> Spent:
        """Return what the earlier attempts took.

        Args:
            rated_power_w: Power in W that stands in, as an estimate, for that of an attempt whose energy isn't known:
                it was spent all the same.
        """
        energies_j = [rated_power_w * a.time_s if a.energy_j is None else a.energy_j for a in self.earlier]
        return Spent(sum(energies_j), sum(attempt.time_s for attempt in self.earlier))

    @property
    def outcome(self) -> TrialOutcome | None:
        """The outcome of an earlier attempt that came to an end; None without any."""
        finished = [attempt.outcome for attempt in self.earlier if attempt.outcome]
        return TrialOutcome.from_json(finished[0]) if finished else None

    def beat(self, spent: Spent, best_metric: float | None = None) -> None:
        """Enter what this attempt has taken so far, and the best metric that it has reported."""
        self._write(Attempt(spent.energy_j, spent.time_s, best_metric=best_metric))

    def finish(self, spent: Spent, outcome: TrialOutcome) -> None:
        """Enter this attempt's end.

        Args:
            spent: What this attempt alone took.
            outcome: The trial's outcome, with what all attempts took.
        """
        self._write(Attempt(spent.energy_j, spent.time_s, outcome.to_json()))

    def withdraw(self) -> None:
        """Strike this attempt out: it never began; folders that it alone needed go too."""
        if self._own is None:
            return
        self._own.unlink(missing_ok=True)
        self._own = None
        with suppress(OSError):  # not empty
            for folder in (self._folder / "checkpoint", self._folder, *list(self._folder.parents)[:3]):
                folder.rmdir()

    @property
    def checkpoint_folder(self) -> Path:
        """Where this trial's checkpoints belong."""
        return self._folder / "checkpoint"

    def _read(self, path: Path) -> Attempt | None:
        try:
            return Attempt.read(path)
        except InvalidValueError as error:
            self._warn(f"warning: an earlier attempt can't be read and is left out: {error}")
            return None

    def _write(self, attempt: Attempt) -> None:
        if self._own is None:
            return
        try:
            write_atomically(self._own, json.dumps(dataclasses.asdict(attempt), allow_nan=False))
        except OSError as error:
            self._warn(f"warning: {self._own} can't be written: {error}")
            self._own = None


def trial_folder(base: Path, plan: TrialPlan) -> Path:
    """Return the folder of a trial's attempts; two jobs in one run keep apart."""
    return base / FOLDER / _safe(plan.run_id) / _safe(plan.job_id) / str(plan.slot)


def _safe(name: str) -> str:
    """Return a file name for any text; different texts get different names."""
    kept = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:80]
    return kept if kept == name else f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _unused(folder: Path, name: str) -> Path:
    """Return a file that is not there yet: the same pod may begin more than once."""
    count = 1
    while (path := folder / f"{name}{f'-{count}' if count > 1 else ''}.json").exists():
        count += 1
    return path
