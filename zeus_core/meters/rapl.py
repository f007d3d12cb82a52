"""Energy of the processors and their memory, by RAPL as Linux shows it under /sys/class/powercap.

    intel-rapl:0/name = package-0        energy_uj, max_energy_range_uj, constraint_0_max_power_uw
    intel-rapl:0:0/name = dram           energy_uj, max_energy_range_uj

The counters are those of the whole machine, whoever uses it. They restart at 0 after some minutes, so that they are
read from time to time. Since 2020 the kernel lets only root read them.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

FOLDER_VARIABLE = "ZEUS_KFP_RAPL_FOLDER"
FOLDER = "/sys/class/powercap"
READ_INTERVAL_S = 30.0
"""A counter of 2^32 units of 61 uJ restarts after 262 kJ: 10 minutes at 400 W."""


class RaplUnavailableError(Exception):
    """RAPL can't measure here."""


@dataclass(frozen=True, slots=True)
class Zone:
    """One counter.

    Attributes:
        path: Its folder.
        range_uj: Energy in uJ at which it restarts at 0.
    """

    path: Path
    range_uj: int

    @classmethod
    def at(cls, path: Path) -> Self:
        """Return the zone in a folder.

        Raises:
            OSError: If it can't be read.
            ValueError: If it holds no numbers.
        """
        zone = cls(path, int((path / "max_energy_range_uj").read_text()))
        zone.energy_uj()
        return zone

    def energy_uj(self) -> int:
        """Return the counter in uJ.

        Raises:
            OSError: If it can't be read.
            ValueError: If it holds no number.
        """
        return int((self.path / "energy_uj").read_text())

    def gained_uj(self, before: int, now: int) -> int:
        """Return what the counter gained between two readings, which are never half of its range apart.

        One that falls from its upper half has come to its end and gone on from 0; one that falls from its lower half
        was set to 0, as when the machine slept.
        """
        if now >= before:
            return now - before
        return now + self.range_uj - before if before >= self.range_uj / 2 else now


class RaplMeter:
    """Sum of the packages and their memory."""

    name = "rapl"
    estimated = False
    power_limit_w: float | None = None
    shortest_window_s = 0.1
    """The counters are renewed every millisecond or so."""
    settling_s = 0.0

    def __init__(
        self, zones: list[Zone], *, accelerator: str, core_count: int, max_power_w: float, interval_s: float
    ) -> None:
        """Start from zones that can be read.

        Args:
            zones: What is summed.
            accelerator: Model of the processor.
            core_count: Cores that this process may use.
            max_power_w: Rated power in W.
            interval_s: Seconds between two readings of its own; infinity reads only when asked.
        """
        self.accelerator = accelerator
        self.accelerator_count = core_count
        self.max_power_w = max_power_w
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._last_uj = {zone: zone.energy_uj() for zone in zones}
        self._total_uj = 0
        self._thread: threading.Thread | None = None
        if interval_s != float("inf"):
            self._thread = threading.Thread(target=self._keep_up, args=(interval_s,), daemon=True)
            self._thread.start()

    def energy_j(self) -> float | None:
        """Return the energy in J since the meter was opened; None if it can't be read now."""
        with self._lock:
            if self._closing.is_set():
                return None
            try:
                now_uj = {zone: zone.energy_uj() for zone in self._last_uj}
            except (OSError, ValueError):
                return None
            self._total_uj += sum(zone.gained_uj(self._last_uj[zone], now_uj[zone]) for zone in now_uj)
            self._last_uj = now_uj
            return self._total_uj / 1e6

    def close(self) -> None:
        """Stop to read; later readings are None."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _keep_up(self, interval_s: float) -> None:
        while not self._closing.wait(interval_s):
            self.energy_j()


def open_rapl(
    folder: Path, *, accelerator: str, core_count: int, rated_power_w: float, interval_s: float = READ_INTERVAL_S
) -> RaplMeter:
    """Open RAPL.

    Args:
        folder: Where Linux shows it.
        accelerator: Model of the processor.
        core_count: Cores that this process may use.
        rated_power_w: Rated power in W, where RAPL tells none.
        interval_s: Seconds between two readings of its own.

    Raises:
        RaplUnavailableError: If there is none, or it can't be read.
    """
    packages = [path for path in _named(folder.glob("intel-rapl:*"), "package") if path.name.count(":") == 1]
    memory = [zone for package in packages for zone in _named(package.glob(f"{package.name}:*"), "dram")]
    if not packages:
        raise RaplUnavailableError(f"there is no RAPL in {folder}")
    try:
        zones = [Zone.at(path) for path in (*packages, *memory)]
    except (OSError, ValueError) as error:
        raise RaplUnavailableError(f"RAPL can't be read: {error}") from error
    return RaplMeter(
        zones,
        accelerator=accelerator,
        core_count=core_count,
        max_power_w=_rated_w(packages) or rated_power_w,
        interval_s=interval_s,
    )


def _named(paths: Iterator[Path], beginning: str) -> list[Path]:
    found = []
    for path in sorted(paths):
        try:
            name = (path / "name").read_text().strip()
        except OSError:
            continue
        if name.startswith(beginning):
            found.append(path)
    return found


def _rated_w(packages: list[Path]) -> float:
    """Return the packages' rated power in W; 0 if one of them tells none."""
    try:
        rated_uw = [int((path / "constraint_0_max_power_uw").read_text()) for path in packages]
    except (OSError, ValueError):
        return 0.0
    return sum(rated_uw) / 1e6 if all(value > 0 for value in rated_uw) else 0.0
