"""What is noted of a GPU whose power limit is changed: what was found, what was set, and how to put it back."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from zeus_kfp.zeus_core.validation import number

NODE_VARIABLE = "ZEUS_KFP_NODE"
"""Environment variable that holds the name of the pod's node; the pipeline sets it."""
TRIAL_KEY_VARIABLE = "ZEUS_KFP_TRIAL_KEY"
"""Environment variable that names a trial as the store does: JSON, [job, run, slot]; its supervisor sets it."""

_SAME_W = 1.0
"""Two limits closer than this are the same: some drivers round to whole watts."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def is_same(one_w: float, other_w: float) -> bool:
    """Return whether two limits in W are the same to a driver."""
    return abs(one_w - other_w) < _SAME_W


@dataclass(frozen=True, slots=True)
class WayBack:
    """How the limit of a GPU can be set from another machine.

    Attributes:
        zeusd: host:port of its node's zeusd.
        gpu_id: The GPU's number there.
        energy_j: Its energy counter in J when this was written; a lower one later is another GPU's, or another boot's.
    """

    zeusd: str
    gpu_id: int
    energy_j: float

    @classmethod
    def of(cls, values: Any) -> Self | None:
        """Return the way that a file tells; None if it tells none.

        Raises:
            TypeError: If it is no object.
            ValueError: If a value can't be one.
            KeyError: If one is missing.
        """
        if values is None:
            return None
        return cls(str(values["zeusd"]), int(values["gpu_id"]), number("energy_j", values["energy_j"], at_least=0))


@dataclass(frozen=True, slots=True)
class Found:
    """What a file says of its GPU.

    Attributes:
        found_w: Power limit in W before any change.
        set_w: Every limit in W that may have been set since.
        boot_id: The machine's boot that this belongs to; a limit does not outlive it.
        process_id: Who wrote it.
        node: The machine, as people know it; "" if it has no name.
        way_back: How its limit can be set from elsewhere; None if it can't.
        trial: The trial that set limits, as ZEUS_KFP_TRIAL_KEY names it; "" for none.
    """

    found_w: float
    set_w: tuple[float, ...]
    boot_id: str
    process_id: int
    node: str = ""
    way_back: WayBack | None = None
    trial: str = ""

    @classmethod
    def from_json(cls, document: str) -> Self | None:
        """Return what a file says; None if it is empty or broken."""
        try:
            values = json.loads(document)
            found_w = number("found_w", values["found_w"], above=0)
            set_w = tuple(number("set_w", value, above=0) for value in values["set_w"])
            way_back = WayBack.of(values.get("way_back"))
            node, trial = str(values.get("node", "")), str(values.get("trial", ""))
            return cls(found_w, set_w, str(values["boot_id"]), int(values["process_id"]), node, way_back, trial)
        except (TypeError, ValueError, KeyError, RecursionError, AttributeError):
            return None

    @property
    def is_of_this_boot(self) -> bool:
        """Whether it was written on this machine since it was last started; a limit lasts no longer."""
        return self.boot_id == boot_id()

    def was_set(self, power_limit_w: float) -> bool:
        """Return whether a limit in W may have been set by whoever wrote this."""
        return any(is_same(power_limit_w, limit_w) for limit_w in self.set_w)


def boot_id() -> str:
    """Return what tells this boot of the machine from any other; "" where nothing does."""
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
