"""Check everything that power limits and meters promise, on a real NVIDIA GPU; takes about five minutes.

    python benchmarks/gpu_check.py [--minutes 1.0]

Needs PyTorch with CUDA; to set limits, root with CAP_SYS_ADMIN, or zeusd. What can't be done here is said, and the rest
is checked all the same. It prints:

- what `zeus-kfp doctor` finds,
- a small model trained with profiling: the rows, the limit chosen and what it saves,
- the limit after training that ended by itself, and after SIGKILL,
- the energy counter against polled power, over the same stretch,
- what profiling costs: the time of a step bare, while limits are profiled, and afterwards.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

import torch
from torch import nn

from zeus_kfp.pipelines.doctor import examine
from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.meters.checked import CheckedMeter
from zeus_kfp.zeus_core.meters.nvml_devices import open_devices
from zeus_kfp.zeus_core.power import repair_limits
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.summary import Summary

KILLED = """
import os, signal
from zeus_kfp.zeus_core.power import open_limiter
limiter = open_limiter()
print("set", limiter.set(limiter.allowed.lowest_w if limiter.allowed else 0), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def limits_w() -> list[float | None]:
    """Return the power limits in W that stand now."""
    with closing(open_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))) as devices:
        return [devices.limit_w(gpu) for gpu in devices.gpus]


def training_step() -> Callable[[], None]:
    """Return a step that keeps a large GPU busy for some 10 ms."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8192, 8192), nn.ReLU()) for _ in range(6))).cuda().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    inputs = torch.randn(4096, 8192, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).float().pow(2).mean().backward()
        optimizer.step()

    return step


def seconds_a_step(batches: Iterable[int], step: Callable[[], None], count: int) -> float:
    """Return the time in s of a step."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in batches:
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def check_training(step: Callable[[], None], minutes: float) -> None:
    """Train with profiling and print the profile, what it saves, and its overhead."""
    for _ in range(50):
        step()
    bare_s = seconds_a_step(range(200), step, 200)
    count = max(int(minutes * 60 / bare_s), 500)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial.local(batch_size=4096, target_metric=1.0, max_epochs=4, directory=folder)
        settled_s = []
        for epoch in trial.epochs():
            epoch_s = seconds_a_step(trial.train(range(count)), step, count)
            settled_s += [epoch_s] if epoch else []
            trial.report_metric(0.0)
        trial.close()
        summary = Summary.read(Path(folder) / "summary.json")
    assert summary is not None
    for row in summary.profiles:
        print(
            f"  {row.phase.value} at {row.power_limit_w} W: {row.average_power_w:.1f} W, "
            f"{row.throughput_samples_per_s:.0f} samples/s"
        )
    print(f"  found {summary.power_limit_found_w} W, trained on at {summary.power_limit_w} W; now {limits_w()}")
    print(f"  energy {summary.energy_j:.0f} J by {summary.energy_source}", end="")
    print(f", {summary.second_energy_j} J by {summary.second_energy_source or 'no second source'}")
    print(f"  a step: {bare_s * 1e3:.3f} ms bare, {statistics.median(settled_s) * 1e3:.3f} ms at the chosen limit")


def check_overhead(step: Callable[[], None]) -> None:
    """Print what measuring costs under the same limit: a loop bare and through a trial, in turns."""
    os.environ["ZEUS_KFP_POWER_LIMITS"] = "off"
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial.local(batch_size=4096, target_metric=1.0, max_epochs=2, directory=folder)
        for _ in trial.epochs():
            for _ in range(5):
                bare_s = seconds_a_step(range(200), step, 200)
                ratios.append(seconds_a_step(trial.train(range(200)), step, 200) / bare_s)
            trial.report_metric(0.0)
        trial.close()
    del os.environ["ZEUS_KFP_POWER_LIMITS"]
    print(f"  a measured step takes {statistics.median(ratios):.4f} times as long as a bare one")


def check_kill() -> None:
    """Kill a process that has set the lowest limit, and print the limit before, after, and repaired."""
    before = limits_w()
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True)
    left = limits_w()
    repair_limits()
    print(f"  found {before}; {done.stdout.strip() or done.stderr[-200:]}", end="; ")
    print(f"left by SIGKILL ({done.returncode == -signal.SIGKILL}) {left}; repaired {limits_w()}")


def check_meters(step: Callable[[], None], time_s: float) -> None:
    """Print the energy of the same stretch by the counter and by polled power."""
    with closing(open_meter()) as meter:
        second = meter.second if isinstance(meter, CheckedMeter) else None
        torch.cuda.synchronize()
        first_j, second_j, start = meter.energy_j(), second.energy_j() if second else None, time.perf_counter()
        while time.perf_counter() - start < time_s:
            step()
            torch.cuda.synchronize()
        spent = [
            None if before is None or after is None else after - before
            for before, after in ((first_j, meter.energy_j()), (second_j, second.energy_j() if second else None))
        ]
        print(f"  {meter.name}: {spent[0]} J; {second.name if second else 'no second source'}: {spent[1]} J")


def main() -> None:
    """Run all checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long one epoch of the training check takes")
    minutes = parser.parse_args().minutes
    print(f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for finding in examine():
        print(f"  {finding.verdict.value:8} {finding.subject}: {finding.found}")
    step = training_step()
    print("counter and polled power:")
    check_meters(step, 15.0)
    print("SIGKILL:")
    check_kill()
    print("training with profiling:")
    check_training(step, minutes)
    print("overhead:")
    check_overhead(step)


if __name__ == "__main__":
    if torch.cuda.is_available():
        main()
    else:
        print("no CUDA GPU: skipped")
