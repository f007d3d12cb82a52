"""Turn a signal that ends this process into an exception, so that the training process is ended first."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Terminated(BaseException):
    """This process was asked to end."""

    def __init__(self, number: int) -> None:
        """Keep the signal's number."""
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """The signals that ask this process to end: noted, and raised only where that is let."""

    def __init__(self) -> None:
        """Begin with none noted, and none let through."""
        self.noted: int | None = None
        self._are_let = False

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Raise :class:`Terminated` inside the block on the first signal, also one noted before; note the others.

        It is raised at the latest at the block's end, so that what follows the block is never interrupted.
        """
        self._are_let = True
        if self.noted is not None:
            self._raise()
        try:
            yield
        finally:
            self._are_let = False

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Handle a signal."""
        if self.noted is None:
            self.noted = number
        if self._are_let:
            self._raise()

    def _raise(self) -> None:
        assert self.noted is not None
        self._are_let = False
        raise Terminated(self.noted)


@contextmanager
def signals_held() -> Iterator[Signals]:
    """Hold back SIGTERM, SIGHUP and SIGINT until the block's end, but for where the block lets them through.

    After the block the first of them does its work; if this process lives on, :class:`Terminated` is raised. Outside
    the main thread, where Python allows no handler, nothing is held back.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signals.note)
    try:
        yield signals
    finally:
        _restore(handlers)
        if signals.noted is not None:
            signal.raise_signal(signals.noted)
            raise Terminated(signals.noted)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        # A handler that was not set from Python is None, and can't be set again from here.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
