"""Put back the power limits that killed pods have left on other machines, through the zeusd of each.

It takes a folder that the pods of all nodes share, on a volume whose file locks hold between them.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.nvml_devices import LimitRefusedError
from zeus_kfp.zeus_core.power.found import FOLDER_VARIABLE, FoundFile, limits_folder, noted, own_name
from zeus_kfp.zeus_core.power.note import Found, WayBack, is_same
from zeus_kfp.zeus_core.power.zeusd import HOST_VARIABLE, TOKEN_VARIABLE, zeusd_address
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress, ZeusdClient, ZeusdUnreachableError


@dataclass(frozen=True, slots=True)
class Left:
    """A GPU whose limit a killed pod may have left changed.

    Attributes:
        line: What was done about it, for people.
        uuid: The GPU; "" where it isn't known.
        found: What the pod has noted; None where that can't be read.
    """

    line: str
    uuid: str = ""
    found: Found | None = None


def repair_elsewhere(environ: Mapping[str, str] = os.environ) -> list[Left]:
    """Put back what no living process holds, and return each GPU that it was about.

    Never raises: what can't be put back is said, and left to the next trial on its machine.

    Args:
        environ: Environment variables: ZEUS_KFP_LIMITS_FOLDER, without which there is nothing to do, and ZEUSD_TOKEN.
    """
    if not environ.get(FOLDER_VARIABLE):
        return []
    repair = _Repair(environ)
    try:
        own = limits_folder(environ)
        return [left for path, _ in noted(own) if (left := repair.tried(path))] + _of_others(own)
    except OSError as error:
        return [Left(f"power limits that may have been left changed can't be looked up: {error}")]


def _of_others(own: Path) -> list[Left]:
    """Return a line on the folders of other users, whose files can't be read, or mustn't be trusted."""
    if own.name != own_name():
        return []
    others = [folder for folder in sorted(own.parent.glob("user-*")) if folder != own and _may_tell(folder)]
    if not others:
        return []
    named = ", ".join(folder.name for folder in others)
    return [
        Left(
            f"{own.parent} has power limits of trials of other users ({named}), that {own.name} can't look after: let "
            "trials and exit handler run as the same user (runAsUser)"
        )
    ]


def _may_tell(folder: Path) -> bool:
    """Return whether a folder says something of a GPU, or can't be looked into."""
    return not os.access(folder, os.R_OK | os.X_OK) or bool(noted(folder))


class _Repair:
    """Repairs one file after the other."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._dead: dict[str, ZeusdUnreachableError] = {}
        """Addresses at which nobody answers: asking again for every GPU of a node would only take time."""

    def tried(self, path: Path) -> Left | None:
        """Return the GPU of a file, also where the file is of no use; None where there is nothing to do."""
        try:
            return self._repair_file(path)
        except OSError as error:
            line = f"{path.stem} may have been left at a power limit that a killed trial set: {error}"
            return Left(line, path.stem)

    def _repair_file(self, path: Path) -> Left | None:
        try:
            file = FoundFile(path)
        except BlockingIOError:  # its process is alive
            return None
        with closing(file):
            found = file.read_any()
            if found is None:
                return None
            gpu = f"{path.stem} on node {found.node or 'unknown'}"
            try:
                line = self._put_back(found)
            except (LimitRefusedError, InvalidValueError) as error:
                return Left(
                    f"{gpu} may have been left at a power limit that a killed trial set; it had {found.found_w:g} W, "
                    f"which the next trial there puts back: {error}",
                    path.stem,
                    found,
                )
            file.clear()
            return Left(f"{gpu}: {line}", path.stem, found)

    def _put_back(self, found: Found) -> str:
        way = found.way_back
        if way is None:
            raise LimitRefusedError("it can't be set from here")
        if way.zeusd in self._dead:
            raise self._dead[way.zeusd]
        try:
            return _put_back(ZeusdClient(_address(self._environ, way)), found, way)
        except ZeusdUnreachableError as error:
            self._dead[way.zeusd] = error
            raise


def _put_back(client: ZeusdClient, found: Found, way: WayBack) -> str:
    """Put back a limit if it is still one of those that were set, and return what was done."""
    standing_w = client.power_limit_mw(way.gpu_id) / 1000
    if client.energies_mj([way.gpu_id]).get(way.gpu_id, 0) / 1000 < way.energy_j:
        return "its node was started again since, which has reset its power limit"
    if not found.was_set(standing_w):
        return f"its power limit of {standing_w:g} W is not one that a killed trial set, and stays"
    client.set_power_limit(way.gpu_id, round(found.found_w * 1000))
    now_w = client.power_limit_mw(way.gpu_id) / 1000
    if not is_same(now_w, found.found_w):
        raise LimitRefusedError(f"{found.found_w:g} W were asked for, but {now_w:g} W stand")
    return f"stood at {standing_w:g} W, left by a trial that was killed: its {found.found_w:g} W are put back"


def _address(environ: Mapping[str, str], way: WayBack) -> ZeusdAddress:
    told = {HOST_VARIABLE: way.zeusd, TOKEN_VARIABLE: environ.get(TOKEN_VARIABLE, "")}
    address = zeusd_address(told)
    if address is None:
        raise LimitRefusedError("no zeusd is named")
    return address
