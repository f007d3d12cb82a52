"""Turn a signal that ends this process into an exception, so that the training process is ended first."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(BaseException):
    """This process was asked to end."""

    def __init__(self, number: int) -> None:
        """Keep the signal's number."""
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def terminated_by_signal() -> Iterator[None]:
    """Raise :class:`Terminated` inside the block on SIGTERM or SIGHUP, then let the signal do its work.

    Outside the main thread, where Python allows no handler, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _raise)
    try:
        yield
    except Terminated as terminated:
        _restore(handlers)
        os.kill(os.getpid(), terminated.number)
        raise
    finally:
        _restore(handlers)


def _raise(number: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the killing of the training process.
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise Terminated(number)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        # A handler that was not set from Python is None, and can't be set again from here.
        signal.signal(number, signal.SIG_DFL if handler is None else handler)
