"""Energy where there is no counter: power, read again and again and integrated by the trapezoid rule."""

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

POLL_INTERVAL_S = 0.1
"""NVML refreshes its power reading every 20 to 100 ms; asking more often brings nothing."""


class PowerSource(Protocol):
    """GPUs whose power can be read."""

    model: str
    count: int
    max_power_w: float
    power_limit_w: float | None

    def power_w(self) -> float | None:
        """Return the power in W now; None if it can't be read."""
        ...

    def close(self) -> None:
        """Give the GPUs back."""
        ...


class PollingMeter:
    """Integral of the GPUs' power over time, sampled by a thread of its own.

    A process that is forked off has no such thread, and finds the lock as that thread had it; it measures nothing.
    """

    shortest_window_s = 2.0
    settling_s = 1.0
    """GPUs since Ampere tell the mean power of the last second."""

    def __init__(
        self,
        source: PowerSource,
        *,
        interval_s: float = POLL_INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        name: str = "nvml-polling",
        estimated: bool = False,
    ) -> None:
        """Take a first sample and start to poll.

        Args:
            source: GPUs whose power can be read.
            interval_s: Seconds between two samples; infinity samples only when asked.
            clock: Returns a time in s.
            name: What the meter is called.
            estimated: Whether the source's power is an estimate.
        """
        self.name = name
        self.estimated = estimated
        self._source = source
        self._clock = clock
        self.accelerator = source.model
        self.accelerator_count = source.count
        self.max_power_w = source.max_power_w
        self.power_limit_w = source.power_limit_w
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._last: tuple[float, float] | None = None
        self._total_j = 0.0
        self._thread: threading.Thread | None = None
        self.sample()
        if interval_s != float("inf"):
            self._thread = threading.Thread(target=self._poll, args=(interval_s,), daemon=True)
            self._thread.start()

    def sample(self) -> bool:
        """Read the power once, add the energy since the sample before, and return whether it could be read."""
        if os.getpid() != self._process_id:
            return False
        with self._lock:
            if self._closing.is_set():
                return False
            power_w = self._source.power_w()
            now = self._clock()
            if power_w is None:
                return False
            if self._last is not None:
                then, power_then_w = self._last
                self._total_j += (now - then) * (power_w + power_then_w) / 2
            self._last = (now, power_w)
            return True

    def energy_j(self) -> float | None:
        """Return the energy in J since the meter was opened, up to now; None if the power can't be read now."""
        return self._total_j if self.sample() else None

    def close(self) -> None:
        """Stop to poll and close NVML; later readings are None."""
        if os.getpid() != self._process_id:
            return
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
        if self._thread is not None:
            self._thread.join()
        self._source.close()

    def _poll(self, interval_s: float) -> None:
        while not self._closing.wait(interval_s):
            self.sample()
