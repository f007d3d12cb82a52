"""Check everything that power limits and meters promise, on a real NVIDIA GPU; takes less than ten minutes.

    python benchmarks/gpu_check.py [--epoch-s 40] [--fake]

Needs PyTorch with CUDA; to set limits, root with CAP_SYS_ADMIN, or zeusd. What can't be done here is said, and the rest
is checked all the same. It prints:

- what `zeus-kfp doctor` finds,
- the energy counter against polled power, over the same stretch,
- the limit after a process that had set the lowest one got SIGKILL, and after its repair,
- a small model trained with profiling: the rows, the limit chosen, what it saves, and the limit afterwards,
- what profiling costs: the time of a step bare, while limits are profiled, and afterwards.

It ends with 1 where something isn't as it must be, and with 77 where there is no GPU. `--fake` checks the script itself
on a simulated GPU, whose work is done by the processor; its overhead says nothing and isn't judged.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from zeus_kfp.pipelines.demo.fake_gpu import LIBRARY, fake_gpu, step_on_gpu
from zeus_kfp.pipelines.doctor import examine
from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.meters.checked import CheckedMeter
from zeus_kfp.zeus_core.meters.nvml_devices import open_devices
from zeus_kfp.zeus_core.meters.nvml_start import NvmlUnavailableError
from zeus_kfp.zeus_core.power import LimitRange, ObserveOnly, repair_limits
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.summary import Summary

SKIPPED = 77
BATCH = 4096
BLOCK_S = 0.2
KILLED = """
import os, signal, sys
from zeus_kfp.zeus_core.power import open_limiter
limiter = open_limiter()
if limiter.allowed is None:
    sys.exit(limiter.why_not)
print(limiter.set(limiter.allowed.lowest_w), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@dataclass(frozen=True, slots=True)
class Work:
    """A step of training, and what waits for the GPU."""

    step: Callable[[], None]
    wait: Callable[[], None]
    name: str
    is_real: bool

    def step_s(self, count: int) -> float:
        """Return the time in s of so many steps."""
        self.wait()
        start = time.perf_counter()
        for _ in range(count):
            self.step()
        self.wait()
        return time.perf_counter() - start


class Standing(ObserveOnly):
    """Lets limits be profiled of which none is set, so that every step takes as long as any other."""

    name = "standing"
    allowed: LimitRange | None = LimitRange(100.0, 250.0)

    def set(self, power_limit_w: float) -> float | None:
        """Say that the limit stands."""
        return power_limit_w


class Report:
    """Prints what was found, and keeps what isn't as it must be."""

    def __init__(self) -> None:
        """Start with nothing amiss."""
        self.failures: list[str] = []

    def say(self, line: str) -> None:
        """Print a line."""
        print(f"  {line}", flush=True)

    def check(self, is_right: bool, line: str) -> None:
        """Print a line, and whether it is as it must be."""
        print(f"  {'ok' if is_right else 'WRONG'}: {line}", flush=True)
        if not is_right:
            self.failures.append(line)


def gpu_work() -> Work:
    """Return a step that keeps a large GPU busy for some 10 ms."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8192, 8192), nn.ReLU()) for _ in range(6))).cuda().bfloat16()
    inputs = torch.randn(BATCH, 8192, device="cuda", dtype=torch.bfloat16)
    return Work(_sgd_step(model, inputs), torch.cuda.synchronize, torch.cuda.get_device_name(), is_real=True)


def fake_work() -> Work:
    """Return a step of a small model on the processor, which takes as long as the fake GPU's limit makes it."""
    sgd, on_gpu = _sgd_step(nn.Linear(64, 64), torch.randn(32, 64)), step_on_gpu()

    def step() -> None:
        sgd()
        on_gpu(100)

    return Work(step, lambda: None, "simulated GPU", is_real=False)


def _sgd_step(model: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).float().pow(2).mean().backward()
        optimizer.step()

    return step


def limits_w() -> list[float | None]:
    """Return the power limits in W that stand now."""
    with closing(open_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))) as devices:
        return [devices.limit_w(gpu) for gpu in devices.gpus]


def check_meters(work: Work, report: Report, time_s: float) -> None:
    """Compare the energy of the same stretch by the counter and by polled power."""
    with closing(open_meter()) as meter:
        second = meter.second if isinstance(meter, CheckedMeter) else None
        sources = [meter] if second is None else [meter, second]
        work.wait()
        before_j, start = [source.energy_j() for source in sources], time.perf_counter()
        while time.perf_counter() - start < time_s:
            work.step()
            work.wait()
        spent = [_difference(then, source.energy_j()) for then, source in zip(before_j, sources, strict=True)]
    for source, energy_j in zip(sources, spent, strict=True):
        report.check(bool(energy_j), f"{source.name}: {_shown(energy_j, 'J')} in {time_s:g} s")
    if len(spent) == 1:
        report.say("there is no second source to compare with")
    elif all(spent):
        ratio = (spent[0] or 0.0) / (spent[1] or 1.0)
        report.check(0.9 < ratio < 1.1, f"the counter's energy is {ratio:.3f} times that of polled power")


def check_kill(report: Report) -> None:
    """Kill a process that has set the lowest limit, and repair the limit as its supervisor does."""
    before = limits_w()
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True)
    if done.returncode != -signal.SIGKILL:
        report.say(f"limits can't be set here, so there is nothing to put back: {done.stderr.strip()[-500:]}")
        return
    left = limits_w()
    report.check(left != before, f"{before} W before, {left} W left by SIGKILL ({done.stdout.strip()} W set)")
    repair_limits()
    report.check(limits_w() == before, f"{limits_w()} W after the repair")


def check_training(work: Work, report: Report, epoch_s: float) -> None:
    """Train with profiling: the profile, the limit chosen, what it saves, and the limit afterwards."""
    before = limits_w()
    count = max(int(epoch_s / (work.step_s(50) / 50)), 200)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial.local(batch_size=BATCH, target_metric=1.0, max_epochs=4, directory=folder)
        for _ in trial.epochs():
            for _ in trial.train(range(count)):
                work.step()
            trial.report_metric(0.0)
        trial.close()
        summary = Summary.read(Path(folder) / "summary.json")
    assert summary is not None
    for row in summary.profiles:
        power = f"{row.average_power_w:.1f} W, {row.throughput_samples_per_s:.0f} samples/s"
        report.say(f"{row.phase.value} at {_shown(row.power_limit_w, 'W')}: {power}")
    report.check(bool(summary.profiles), f"{len(summary.profiles)} profile rows, measured by {summary.energy_source}")
    second = f"{_shown(summary.second_energy_j, 'J')} by {summary.second_energy_source or 'no second source'}"
    report.check(bool(summary.energy_j), f"{_shown(summary.energy_j, 'J')} in {summary.time_s:.1f} s; {second}")
    found, chosen = (_shown(limit_w, "W") for limit_w in (summary.power_limit_found_w, summary.power_limit_w))
    report.say(f"found {found}, trained on at {chosen}, through {summary.power_limiter}")
    report.check(limits_w() == before, f"{limits_w()} W after training, {before} W before")


def check_overhead(work: Work, report: Report, time_s: float) -> None:
    """Compare the time of a loop bare and through a trial, in turns, while limits are profiled and afterwards."""
    block = max(int(BLOCK_S / (work.step_s(20) / 20)), 1)
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder, closing(open_meter()) as meter:
        assignment = local_assignment(
            batch_size=BATCH,
            target_metric=1.0,
            higher_is_better=True,
            max_epochs=3,
            learning_rate_factor=1.0,
            eta_knob=0.5,
            cost_threshold=None,
            data_path="",
            arguments={},
            directory=folder,
        )
        trial = Trial(assignment, meter=meter, limiter=Standing(), progress=said.append, synchronize=work.wait)
        epochs = trial.epochs()
        next(epochs)
        batches = iter(trial.train(iter(int, 1)))
        profiling = _ratio(work, batches, block, lambda: any("chosen" in line for line in said), 3 * time_s)
        end = time.monotonic() + time_s
        settled = _ratio(work, batches, block, lambda: time.monotonic() > end, time_s)
        trial.close()
    for name, ratio, most in (("while limits are profiled", profiling, 1.03), ("afterwards", settled, 1.01)):
        line = f"{name} a step takes {ratio:.4f} times as long as a bare one (at most {most})"
        if work.is_real:
            report.check(ratio <= most, line)
        else:
            report.say(line)


def _ratio(work: Work, batches: Iterator[int], block: int, is_over: Callable[[], bool], longest_s: float) -> float:
    """Return the time of followed steps over that of bare ones; they take turns, and neither always comes first."""
    spent_s = {False: 0.0, True: 0.0}
    turn, end = 0, time.monotonic() + longest_s
    while turn % 4 or not (is_over() or time.monotonic() > end):
        is_followed = turn % 4 in (1, 2)
        work.wait()
        start = time.perf_counter()
        for _ in range(block):
            if is_followed:
                next(batches)
            work.step()
        work.wait()
        spent_s[is_followed] += time.perf_counter() - start
        turn += 1
    return spent_s[True] / spent_s[False] if spent_s[False] else float("nan")


def _difference(before_j: float | None, after_j: float | None) -> float | None:
    return None if before_j is None or after_j is None else after_j - before_j


def _shown(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:.0f} {unit}"


@contextmanager
def simulated() -> Iterator[None]:
    """Let this process, and those it starts, find the fake GPU."""
    with tempfile.TemporaryDirectory() as folder, fake_gpu(Path(folder)):
        # A library that is loaded already answers to its name, wherever it came from.
        ctypes.CDLL(str(Path(folder) / LIBRARY))
        yield


def check_all(work: Work, epoch_s: float) -> int:
    """Run all checks and return the exit code."""
    report = Report()
    print(f"{time.strftime('%Y-%m-%d')}, {work.name}, PyTorch {torch.__version__}")
    for finding in examine():
        report.say(f"{finding.verdict.value:8} {finding.subject}: {finding.found}")
    work.step_s(50)
    print("counter and polled power:")
    check_meters(work, report, min(15.0, epoch_s))
    print("SIGKILL:")
    check_kill(report)
    print("training with profiling:")
    check_training(work, report, epoch_s)
    print("overhead:")
    check_overhead(work, report, min(30.0, epoch_s))
    print("all is as it must be" if not report.failures else f"not as it must be: {'; '.join(report.failures)}")
    return int(bool(report.failures))


def main() -> int:
    """Check what is asked for, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epoch-s", type=float, default=40.0, help="s that one of the four epochs takes")
    parser.add_argument("--fake", action="store_true", help="check the script itself, on a simulated GPU")
    arguments = parser.parse_args()
    if arguments.fake:
        with simulated():
            return check_all(fake_work(), arguments.epoch_s)
    if not torch.cuda.is_available():
        print("skipped: PyTorch finds no CUDA GPU here; --fake checks the script itself")
        return SKIPPED
    try:
        limits_w()
    except NvmlUnavailableError as error:
        print(f"PyTorch finds a GPU, but it can't be measured: {error}. {error.advice}")
        return 1
    return check_all(gpu_work(), arguments.epoch_s)


if __name__ == "__main__":
    sys.exit(main())
