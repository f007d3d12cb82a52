"""The winner of a recurrence, as an artifact: what select_winner and close_recurrence share."""

from collections.abc import Sequence
from typing import Any, Protocol

from zeus_kfp.state_store.records import TrialRecord
from zeus_kfp.zeus_core.errors import NoWinnerError


class ModelArtifact(Protocol):
    """What is needed of a KFP model artifact."""

    uri: str
    metadata: dict[str, Any]


def require_winner(winner: TrialRecord | None, trials: Sequence[TrialRecord]) -> TrialRecord:
    """Return the winner.

    Raises:
        NoWinnerError: If there is none, or if it saved no model.
    """
    if winner is None:
        raise NoWinnerError(
            f"{why_no_winner(trials)}: see the recurrence's report; a higher max_epochs or max_retries, or another "
            "target may help"
        )
    if not winner.model_uri:
        raise NoWinnerError(
            f"trial {winner.number} reached the target but saved no model: call trial.save_model(model) "
            "or write the file trial.model_path in the training code"
        )
    return winner


def why_no_winner(trials: Sequence[TrialRecord]) -> str:
    """Return what became of the trials of a recurrence none of which reached the target."""
    tried = "; ".join(f"batch size {t.batch_size}: {t.state} {t.reason}".strip() for t in trials)
    return f"no trial of this recurrence reached the target metric ({tried or 'none was started'})"


def publish_winner(trial: TrialRecord, model: ModelArtifact) -> None:
    """Point a model artifact at the winner's model and say in its metadata what it is."""
    model.uri = trial.model_uri
    model.metadata.update(
        batch_size=trial.batch_size,
        trial=trial.number,
        metric=trial.metric,
        energy_j=trial.energy_j,
        energy_estimated=trial.energy_estimated,
        time_s=trial.time_s,
    )
