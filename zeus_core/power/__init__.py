"""Power limits: set them, find the best one, and put back what was found."""

from zeus_kfp.zeus_core.power.choice import open_limiter
from zeus_kfp.zeus_core.power.interface import LimitRange, ObserveOnly, PowerLimiter
from zeus_kfp.zeus_core.power.repair import repair_limits

__all__ = ["LimitRange", "ObserveOnly", "PowerLimiter", "open_limiter", "repair_limits"]
