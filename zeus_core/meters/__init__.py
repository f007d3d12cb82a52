"""Meters: how much energy this process, or the GPUs it uses, have taken so far."""

from zeus_kfp.zeus_core.meters.choice import open_meter
from zeus_kfp.zeus_core.meters.interface import Meter

__all__ = ["Meter", "open_meter"]
