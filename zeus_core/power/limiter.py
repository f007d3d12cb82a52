"""Set one power limit on all GPUs of a trial; whatever happens, what was found is what stands at the end."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zeus_kfp.zeus_core.meters.nvml_devices import Gpu, LimitRefusedError, NvmlDevices
from zeus_kfp.zeus_core.power.found import FoundFile, found_path, holder
from zeus_kfp.zeus_core.power.interface import LimitRange, Setter, common_range
from zeus_kfp.zeus_core.power.neighbours import neighbours
from zeus_kfp.zeus_core.power.note import is_same
from zeus_kfp.zeus_core.power.repair import give_back, put_back
from zeus_kfp.zeus_core.power.setters import check_standing

logger = logging.getLogger(__name__)

_PATIENCE_S = 1.0
"""How long to wait for a GPU that another process may only be looking after."""


class GpuLimiter:
    """Limits the GPUs of one trial.

    Before the first change, and before each one that follows, the file of each GPU says what to put back; see
    :mod:`zeus_kfp.zeus_core.power.found`.
    """

    why_not = ""

    def __init__(self, devices: NvmlDevices, setter: Setter, folder: Path, *, highest_w: float | None = None) -> None:
        """Lock the GPUs, repair what a killed process left, and make sure that limits can be set.

        Args:
            devices: The GPUs; closed with the limiter.
            setter: Sets their limits; closed with the limiter.
            folder: Where the limits found are kept.
            highest_w: Highest limit that may be set, in W; None for the one found.

        Raises:
            LimitRefusedError: If limits can't be set here; nothing was changed.
        """
        self.name = setter.name
        self._devices = devices
        self._setter = setter
        self._set_w: tuple[float, ...] = ()
        self._to_restore: dict[Gpu, float] = {}
        self._ours: dict[Gpu, set[float]] = {gpu: set() for gpu in devices.gpus}
        """What may stand by our doing, in W, apart from what was found."""
        self._told: set[Gpu] = set()
        self._setting = False
        self._ended = False
        self._process_id = os.getpid()
        self._waiting: Callable[[], None] | None = None
        self._files: dict[Gpu, FoundFile] = {}
        try:
            self._lock(folder)
            self._found = {gpu: self._repaired_w(gpu) for gpu in devices.gpus}
            self._try_out()
            self._range = self._common_range(highest_w)
        except (LimitRefusedError, OSError) as error:
            self._unlock()
            raise LimitRefusedError(str(error)) from error
        self.allowed: LimitRange | None = self._range
        limits_w = set(self._found.values())
        self.found_w = limits_w.pop() if len(limits_w) == 1 else None

    def when_free(self, action: Callable[[], None]) -> None:
        """Do something now, or, while a limit is being set, right after that: for handlers of signals."""
        if self._setting:
            self._waiting = action
        else:
            action()

    def set(self, power_limit_w: float) -> float | None:
        """Set the allowed limit closest to ``power_limit_w`` and return the one that stands, in W.

        Where it is refused, or has no effect, the limits found are put back, and no other is set any more; likewise
        where someone else has set a limit since, which stays.
        """
        asked_w = self._range.clamped(power_limit_w)
        with self._at_work():
            if not self._ended and self._is_ours():
                try:
                    if self._is_taken_over():
                        self.restore()
                    elif not self._stands_everywhere(asked_w):
                        self._set_all(asked_w)
                except (LimitRefusedError, OSError) as error:
                    logger.warning("%s: the limits found are put back, and stay", error)
                    self.restore()
        return self.standing_w()

    def standing_w(self) -> float | None:
        """Return the limit in W that all GPUs have now; None if unknown or different."""
        limits_w = {self._devices.limit_w(gpu) for gpu in self._devices.gpus}
        return limits_w.pop() if len(limits_w) == 1 else None

    @property
    def is_over(self) -> bool:
        """Whether what was found is put back, so that no limit is set any more."""
        return self._ended

    def restore(self) -> None:
        """Put back what was found; what can't be put back is tried again by the next call, then by a repair."""
        if not self._is_ours():
            return
        with self._at_work():
            self._ended = True
            for gpu in list(self._to_restore):
                self._restore_one(gpu)

    def close(self) -> None:
        """Restore, and free the GPUs for others."""
        if self._files and self._is_ours():
            self.restore()
            self._unlock()
            self._setter.close()
            self._devices.close()

    def _is_ours(self) -> bool:
        """Return whether this is the process that opened the limiter, not one that it has forked."""
        return os.getpid() == self._process_id

    def _lock(self, folder: Path) -> None:
        for gpu in self._devices.gpus:
            self._check_alone(gpu)
            path = found_path(folder, gpu.uuid)
            try:
                self._files[gpu] = FoundFile(path, patience_s=_PATIENCE_S)
            except BlockingIOError:
                raise LimitRefusedError(
                    f"{holder(path)} sets the power limit of GPU {gpu.index} already: close it first, by trial.close()"
                ) from None

    def _check_alone(self, gpu: Gpu) -> None:
        """Refuse a GPU whose limit would hold for others too."""
        if self._devices.is_divided(gpu):
            raise LimitRefusedError(f"GPU {gpu.index} is divided (MIG): its limit would hold for others too")
        others = neighbours(self._devices.process_ids(gpu))
        if others:
            raise LimitRefusedError(
                f"process {others[0]} works on GPU {gpu.index}, and its limit would hold for that too: name GPUs of "
                "your own in CUDA_VISIBLE_DEVICES"
            )

    def _unlock(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}

    def _repaired_w(self, gpu: Gpu) -> float:
        """Return the limit that a GPU had before any process of ours, after putting it back where one was killed."""
        put_back(self._devices, self._setter, gpu, self._files[gpu])
        standing_w = self._devices.limit_w(gpu)
        if standing_w is None:
            raise LimitRefusedError(f"the power limit of GPU {gpu.index} can't be read")
        return standing_w

    def _try_out(self) -> None:
        """Set every limit to what it is: whoever may not, is told so."""
        for gpu, found_w in self._found.items():
            self._setter.set_limit(gpu, found_w)

    def _common_range(self, highest_w: float | None) -> LimitRange:
        ceiling_w = min(self._found.values()) if highest_w is None else highest_w
        allowed = common_range([self._devices.allowed_w(gpu) for gpu in self._devices.gpus], ceiling_w)
        if allowed is None:
            raise LimitRefusedError("the GPUs name no power limits that all of them take")
        return allowed

    def _stands_everywhere(self, power_limit_w: float) -> bool:
        standing_w = [self._devices.limit_w(gpu) for gpu in self._devices.gpus]
        return all(limit_w is not None and is_same(limit_w, power_limit_w) for limit_w in standing_w)

    def _set_all(self, power_limit_w: float) -> None:
        if power_limit_w not in self._set_w:
            self._set_w += (power_limit_w,)
            for gpu, file in self._files.items():
                file.write(self._found[gpu], self._set_w, way_back=self._setter.way_back(gpu))
        self._to_restore = dict(self._found)
        for gpu in self._devices.gpus:
            self._ours[gpu].add(power_limit_w)
            self._setter.set_limit(gpu, power_limit_w)
        for gpu in self._devices.gpus:
            # A driver may have made another limit of it, which is ours all the same.
            self._ours[gpu].add(self._devices.limit_w(gpu) or power_limit_w)
            check_standing(self._devices, gpu, power_limit_w)
            self._ours[gpu] = {power_limit_w}

    def _anothers_w(self, gpu: Gpu) -> float | None:
        """Return the limit in W that someone else has set since; None if nobody has, or it can't be read."""
        standing_w = self._devices.limit_w(gpu)
        if standing_w is None or any(is_same(standing_w, limit_w) for limit_w in (*self._ours[gpu], self._found[gpu])):
            return None
        return standing_w

    def _is_taken_over(self) -> bool:
        """Return whether someone else has set a limit since, and say so once."""
        taken_w = {gpu: limit_w for gpu in self._devices.gpus if (limit_w := self._anothers_w(gpu)) is not None}
        for gpu, limit_w in taken_w.items():
            self._tell_taken_over(gpu, limit_w)
        return bool(taken_w)

    def _tell_taken_over(self, gpu: Gpu, limit_w: float) -> None:
        if gpu not in self._told:
            logger.warning(
                "GPU %d stands at %g W, which someone else has set: that stays, and this trial sets no other any more",
                gpu.index,
                limit_w,
            )
        self._told.add(gpu)

    def _restore_one(self, gpu: Gpu) -> None:
        found_w = self._to_restore[gpu]
        anothers_w = self._anothers_w(gpu)
        try:
            if anothers_w is None:
                give_back(self._devices, self._setter, gpu, self._files[gpu], found_w)
            else:
                self._tell_taken_over(gpu, anothers_w)
            self._files[gpu].clear()
            del self._to_restore[gpu]
        except (LimitRefusedError, OSError) as error:
            self._ours[gpu].add(self._devices.limit_w(gpu) or found_w)
            if gpu not in self._told:
                logger.warning("the %g W found on GPU %d can't be put back: %s", found_w, gpu.index, error)
            self._told.add(gpu)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        outermost, self._setting = not self._setting, True
        try:
            yield
        finally:
            self._setting = not outermost
            if outermost and self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                waiting()
