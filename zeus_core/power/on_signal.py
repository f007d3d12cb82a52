"""Put power limits back when this process is asked to end, before whatever else the signal does."""

import atexit
import os
import signal
import threading
from types import FrameType
from typing import Any

from zeus_kfp.zeus_core.power.interface import PowerLimiter
from zeus_kfp.zeus_core.power.limiter import GpuLimiter

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class RestoreAtEnd:
    """Restores a limiter on SIGTERM, SIGINT and SIGHUP, and when the interpreter ends, until it is taken back.

    The handler found runs after it, so that a program which saves a checkpoint on SIGTERM still does. A signal that
    the program ignores is left alone. Outside the main thread, where Python allows no handler, only the end counts.

    Attributes:
        has_restored: Whether a signal came, and the program may go on all the same.
    """

    def __init__(self, limiter: PowerLimiter) -> None:
        """Take over the signals; a limiter that sets nothing needs none."""
        self.has_restored = False
        self._limiter = limiter
        self._found: dict[signal.Signals, Any] = {}
        if not isinstance(limiter, GpuLimiter):
            return
        atexit.register(limiter.close)
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            # A handler that was not set from Python is None: it can't be called, nor set again.
            if handler not in (signal.SIG_IGN, None):
                self._found[number] = handler
                signal.signal(number, self._handle)

    def standing_w(self) -> float | None:
        """Return the limit in W that stands now; None if unknown or different."""
        return self._limiter.standing_w()

    def take_back(self) -> None:
        """Put the handlers found back, but for those that someone has replaced since."""
        atexit.unregister(self._limiter.close)
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._found.items():
                # Bound methods are made anew at each look, so they are equal but not the same.
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, handler)
            self._found = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        assert isinstance(self._limiter, GpuLimiter)
        self._limiter.when_free(lambda: self._restore_and_pass_on(signal.Signals(number), frame))

    def _restore_and_pass_on(self, number: signal.Signals, frame: FrameType | None) -> None:
        self._limiter.restore()
        self.has_restored = True
        handler = self._found.get(number)
        if callable(handler):
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
