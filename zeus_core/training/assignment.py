"""What a training process is told: its plan, where things lie, and the user's own arguments."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.processes import TRIAL_VARIABLE
from zeus_kfp.zeus_core.trial import TrialPlan


@dataclass(frozen=True, slots=True)
class Assignment:
    """Everything that a training process is told.

    Attributes:
        plan: The trial's plan.
        data_path: The preprocessed data set; "" for none.
        model_path: Where the trained model goes.
        checkpoint_dir: Folder for checkpoints of this trial, found again by a second attempt at it.
        history_path: File that gets one JSON line an epoch.
        summary_path: File that gets what came of the training so far.
        arguments: The user's own arguments.
        earlier_energy_j: Energy in J that earlier attempts at this trial took.
        earlier_time_s: Time in s that they took.
        earlier_best_metric: Best metric that they reported; None without any.
    """

    plan: TrialPlan
    data_path: str
    model_path: str
    checkpoint_dir: str
    history_path: str
    summary_path: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    earlier_energy_j: float = 0.0
    earlier_time_s: float = 0.0
    earlier_best_metric: float | None = None

    def to_json(self) -> str:
        """Return the assignment as a JSON object.

        Raises:
            InvalidValueError: If an argument is nothing that JSON can hold.
        """
        check_arguments(self.arguments)
        return json.dumps(dataclasses.asdict(self) | {"plan": self.plan.to_json()}, allow_nan=False)

    @classmethod
    def from_json(cls, document: str) -> Self:
        """Return the assignment that :meth:`to_json` wrote.

        Raises:
            InvalidValueError: If the text is no such object.
        """
        try:
            values = json.loads(document)
            return cls(**values | {"plan": TrialPlan.from_json(values["plan"])})
        except (TypeError, ValueError, KeyError) as error:
            raise InvalidValueError(f"{document[:120]!r} is no assignment of a trial: {error}") from None


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that could not be handed to another process.

    Raises:
        InvalidValueError: If one is nothing that JSON can hold.
    """
    try:
        json.dumps(dict(arguments), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"arguments must be what JSON can hold, not {arguments!r}: {error}") from None


def read_assignment(environ: Mapping[str, str] = os.environ) -> Assignment:
    """Return the assignment that this process was started for.

    Raises:
        InvalidValueError: If it was not started for one.
    """
    path = environ.get(TRIAL_VARIABLE, "")
    if not path:
        raise InvalidValueError(
            f"{TRIAL_VARIABLE} is not set: this process was not started as a trial of a pipeline. To try the "
            "training loop without one, use Trial.local(batch_size=…, target_metric=…)"
        )
    try:
        return Assignment.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidValueError(f"{TRIAL_VARIABLE} names {path!r}, which can't be read: {error}") from error
