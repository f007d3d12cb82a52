"""Power limits: set them, find the best one, and put back what was found."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeus_kfp.zeus_core.power.choice import open_limiter
    from zeus_kfp.zeus_core.power.elsewhere import repair_elsewhere
    from zeus_kfp.zeus_core.power.interface import LimitRange, ObserveOnly, PowerLimiter
    from zeus_kfp.zeus_core.power.repair import repair_limits, standing_limits_w

__all__ = [
    "LimitRange",
    "ObserveOnly",
    "PowerLimiter",
    "open_limiter",
    "repair_elsewhere",
    "repair_limits",
    "standing_limits_w",
]

# Imported when asked for: a pod that only keeps books needs the selectors beside them, and no GPU's driver.
_MODULES = {
    "open_limiter": "choice",
    "LimitRange": "interface",
    "ObserveOnly": "interface",
    "PowerLimiter": "interface",
    "repair_elsewhere": "elsewhere",
    "repair_limits": "repair",
    "standing_limits_w": "repair",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
