"""Save a PyTorch model's weights, without importing PyTorch for anyone else."""

import os
import sys
from pathlib import Path
from typing import Any

from zeus_kfp.zeus_core.errors import InvalidValueError


def save_weights(model: Any, path: str) -> None:
    """Write a module's state_dict to a file that is whole or not there.

    Raises:
        InvalidValueError: If ``model`` is no PyTorch module.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        raise InvalidValueError(
            f"save_model takes a PyTorch module, not {type(model).__name__}: write another kind of model to "
            "trial.model_path yourself"
        )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.part")
    torch.save(model.state_dict(), draft)
    os.replace(draft, target)
