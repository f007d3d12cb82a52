"""What measuring and profiling cost a training loop on the CPU: the same loop bare and through a trial.

    python benchmarks/profiling_overhead.py [seconds for each measurement]

A step is hashing that takes about 1, 5 or 20 ms. The bare loop and the other take turns every few steps, and their CPU
time is compared, so that a busy machine slows both alike. While limits are profiled the whole of a run counts, since
meters are read now and then, and of several runs the median; afterwards every step is like any other, and the median of
all turns counts. A bare loop against another bare one, measured like that, shows how much of a ratio is noise. The
meter reads the CPU time of the process tree, which costs more than NVML does; the limiter sets limits in the main
memory, so that only the library's own work counts. It ends with 1 where a ratio is above 1.03 while power limits are
profiled, or above 1.01 afterwards.

What is added to a step is shown twice: where steps do nothing, and among steps of 1 ms, which leave nothing of the
library in the processor's caches. What is done at the end of an epoch comes on top, once an epoch.
"""

import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

from zeus_kfp.zeus_core.meters.estimate import EstimateMeter, process_tree_cpu_time_s
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.power.replay import RecordedGpu
from zeus_kfp.zeus_core.power.selectors import SweepPoint
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.local import local_assignment

STEPS_MS = (1, 5, 20)
MOST_PROFILING, MOST_SETTLED = 1.03, 1.01
TURNS = 9
BLOCK = 5
EMPTY_STEPS, EPOCH_STEPS = 100_000, 500
LIMITS_W = (250, 225, 200, 175, 150, 125, 100)


class CpuMeter(EstimateMeter):
    """The estimate from CPU time, taken for a measurement so that limits are profiled by it."""

    estimated = False
    shortest_window_s = 0.05
    settling_s = 0.01


def calibrated_step(time_ms: float) -> Callable[[], None]:
    """Return work that takes about so many ms."""
    block = bytes(16_384)

    def hash_blocks(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            hashlib.sha256(block)
        return time.perf_counter() - start

    each_s = min(hash_blocks(200) for _ in range(5)) / 200
    count = max(round(time_ms / 1000 / each_s), 1)

    def step() -> None:
        for _ in range(count):
            hashlib.sha256(block)

    return step


def turns(batches: Iterable[int], step: Callable[[], None], count: int) -> list[tuple[float, float]]:
    """Return the CPU time in s of a loop, and that of a bare one beside it, for every four turns that they take."""
    # The bare loop has its batches too, as it would without a trial.
    followed, bare = iter(batches), iter(range(count))
    spent_s = []
    for _ in range(count // BLOCK // 2):
        four_s = {False: 0.0, True: 0.0}
        # Neither always comes first.
        for is_followed in (False, True, True, False):
            following = followed if is_followed else bare
            start = time.process_time()
            for _ in range(BLOCK):
                next(following)
                step()
            four_s[is_followed] += time.process_time() - start
        spent_s.append((four_s[True], four_s[False]))
    return spent_s


def ratios(spent_s: Iterable[tuple[float, float]]) -> list[float]:
    """Return how many times as long the first of each two took."""
    return [followed_s / bare_s for followed_s, bare_s in spent_s]


def empty_step_us(folder: str) -> float:
    """Return the CPU time in us that a settled trial adds to a step, by loops of empty steps."""
    trial = new_trial(folder, ProfilingOptions(warmup_steps=1, profile_steps=1))
    added = []
    for epoch in trial.epochs():
        start = time.process_time()
        for _ in trial.train(range(EMPTY_STEPS)):
            pass
        middle = time.process_time()
        for _ in range(EMPTY_STEPS):
            pass
        added += [2 * middle - start - time.process_time()] if epoch else []
        trial.report_metric(0.0)
        if epoch == TURNS:
            break
    trial.close()
    return statistics.median(added) / EMPTY_STEPS * 1e6


def settled_us(folder: str) -> tuple[float, float]:
    """Return the time in us that a settled trial adds to a step among steps of 1 ms, and that of an epoch's end."""
    step = calibrated_step(1)
    trial = new_trial(folder, ProfilingOptions(warmup_steps=1, profile_steps=20))
    followed_us, bare_us, ends_us, ended_s = [], [], [], 0.0
    for epoch in trial.epochs():
        ends_us += [since_us(ended_s)] if epoch else []
        followed, bare = iter(trial.train(range(EPOCH_STEPS))), iter(range(EPOCH_STEPS))
        for _ in range(EPOCH_STEPS):
            for batches, taken_us in ((followed, followed_us), (bare, bare_us)):
                step()
                start_s = time.perf_counter()
                next(batches)
                taken_us += [since_us(start_s)] if epoch else []
        trial.report_metric(0.0)
        ended_s = time.perf_counter()
        if epoch == TURNS:
            break
    trial.close()
    return statistics.median(followed_us) - statistics.median(bare_us), statistics.median(ends_us)


def since_us(start_s: float) -> float:
    """Return the time in us since a moment."""
    return (time.perf_counter() - start_s) * 1e6


def new_trial(folder: str, options: ProfilingOptions) -> Trial:
    """Return a trial whose limits can be set."""
    gpu = RecordedGpu([SweepPoint(limit_w, 1.0, 1.0) for limit_w in LIMITS_W])
    assignment = local_assignment(
        batch_size=32,
        target_metric=1.0,
        higher_is_better=True,
        max_epochs=1000,
        learning_rate_factor=1.0,
        eta_knob=0.5,
        cost_threshold=None,
        data_path="",
        arguments={},
        directory=folder,
    )
    meter = CpuMeter(core_power_w=10.0, core_count=1, accelerator="CPU", cpu_time_s=process_tree_cpu_time_s)
    return Trial(assignment, meter=meter, limiter=gpu, profiling=options, progress=lambda line: None)


def measure(step_ms: float, time_s: float) -> tuple[float, float, float]:
    """Return how many times as long a loop takes when it is bare, while limits are profiled, and afterwards."""
    step = calibrated_step(step_ms)
    count = max(round(time_s * 1000 / step_ms), len(LIMITS_W) * 10)
    options = ProfilingOptions(warmup_steps=count // len(LIMITS_W) // 5, profile_steps=count // len(LIMITS_W) * 4 // 5)
    bare, profiling, settled = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            bare += ratios(turns(range(count), step, count))
            trial = new_trial(folder, options)
            epochs = trial.epochs()
            next(epochs)
            spent_s = turns(trial.train(range(count)), step, count)
            profiling.append(sum(followed_s for followed_s, _ in spent_s) / sum(bare_s for _, bare_s in spent_s))
            trial.report_metric(0.0)
            next(epochs)
            # The end of the last window.
            for _ in trial.train(range(2 * count)):
                pass
            settled += ratios(turns(trial.train(range(count)), step, count))
            trial.close()
    return statistics.median(bare), statistics.median(profiling), statistics.median(settled)


def main() -> int:
    """Print the ratios; return 1 if one is above its bound."""
    time_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.7
    print(f"{'step':>8}  {'bare':>6}  {'while profiling':>15}  {'afterwards':>10}")
    falls_short = False
    for step_ms in STEPS_MS:
        bare, profiling, settled = measure(step_ms, time_s)
        is_short = profiling > MOST_PROFILING or settled > MOST_SETTLED
        falls_short |= is_short
        verdict = "  FALLS SHORT" if is_short else ""
        print(f"{step_ms:>5} ms  {bare:>6.4f}  {profiling:>15.4f}  {settled:>10.4f}{verdict}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        empty_us = empty_step_us(folder)
    with tempfile.TemporaryDirectory() as folder:
        added_us, end_us = settled_us(folder)
    print(f"added to a step: {empty_us:.2f} us where steps do nothing, {added_us:.2f} us among steps of 1 ms")
    print(f"the end of an epoch: {end_us / 1000:.2f} ms")
    return int(falls_short)


if __name__ == "__main__":
    sys.exit(main())
