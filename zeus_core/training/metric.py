"""Check the metric that a training loop reports."""

import math
from typing import Any

from zeus_kfp.zeus_core.errors import DivergedError, InvalidValueError


def checked_metric(value: Any) -> float:
    """Return a metric as a float.

    Args:
        value: A number, or anything that holds a single one, such as a scalar of NumPy or PyTorch.

    Raises:
        InvalidValueError: If it is text, a truth value, or no single number.
        DivergedError: If it is NaN or infinite.
    """
    if isinstance(value, str | bytes | bool) or "bool" in str(getattr(value, "dtype", "")):
        raise InvalidValueError(f"the metric must be a number, not {value!r} ({type(value).__name__})")
    try:
        metric = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidValueError(
            f"the metric must be a single number, not {value!r} ({type(value).__name__}): {error}"
        ) from None
    if not math.isfinite(metric):
        raise DivergedError(f"the metric is {metric}; a lower learning rate or batch size may help")
    return metric
