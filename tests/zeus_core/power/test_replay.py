"""Whole trials on recorded GPUs."""

import csv

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.power.replay import RecordedGpu, read_sweep
from zeus_kfp.zeus_core.power.selectors import SweepPoint
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.summary import Summary


def limit_of_the_last_step(gpu, folder, objective, eta_knob):
    assignment = local_assignment(
        batch_size=8,
        target_metric=1.0,
        higher_is_better=True,
        max_epochs=2,
        learning_rate_factor=1.0,
        eta_knob=eta_knob,
        cost_threshold=None,
        data_path="",
        arguments={},
        directory=folder,
    )
    options = ProfilingOptions(objective=objective)
    trial = Trial(assignment, meter=gpu, clock=gpu.clock, limiter=gpu, profiling=options, progress=lambda line: None)
    for _ in trial.epochs():
        for _ in trial.train(range(500)):
            gpu.work(0.01)
        last_w = gpu.standing_w()
        trial.report_metric(0.0)
    trial.close()
    return last_w


@pytest.mark.parametrize("objective", ["cost", "energy", "time", "slowdown:1.1"])
def test_a_trial_on_a_recorded_gpu_ends_at_the_best_recorded_limit(tmp_path, recorded_sweep, objective):
    with open(recorded_sweep, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    gpus = [name for name in rows[0] if name.startswith("gpu")]
    time_s = {float(row["window_name"].split("_")[-1]): float(row["elapsed_time"]) for row in rows}
    energy_j = {float(row["window_name"].split("_")[-1]): sum(float(row[gpu]) for gpu in gpus) for row in rows}
    cost_j = {limit: 0.3 * energy_j[limit] + 0.7 * 250 * len(gpus) * time_s[limit] for limit in time_s}
    fast_enough = [limit for limit in time_s if time_s[limit] <= 1.1 * time_s[250.0]]
    best = {
        "cost": min(cost_j, key=cost_j.get),
        "energy": min(energy_j, key=energy_j.get),
        "time": min(time_s, key=time_s.get),
        "slowdown:1.1": min(fast_enough),
    }
    sweep, count = read_sweep(recorded_sweep)
    gpu = RecordedGpu(sweep, count=count)
    assert limit_of_the_last_step(gpu, tmp_path, objective, 0.3) == best[objective]
    assert gpu.standing_w() == 250.0
    told = Summary.read(tmp_path / "summary.json")
    assert (told.energy_source, len(told.profiles)) == ("replay", 7)


def test_a_replay_moves_with_the_work_alone():
    gpu = RecordedGpu([SweepPoint(100, 50.0, 10.0), SweepPoint(200, 80.0, 4.0)], count=2)
    gpu.work(0.5)
    assert (gpu.energy_j(), gpu.clock(), gpu.max_power_w) == (40.0, 2.0, 400)
    assert gpu.set(120) == 100
    gpu.work(0.1)
    assert (gpu.energy_j(), gpu.clock()) == (45.0, 3.0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "a,b\n",
        "window_name,elapsed_time\nx_100,1\n",
        "window_name,elapsed_time,gpu0_energy\nx_100,nan,1\n",
        "window_name,elapsed_time,gpu0_energy\nlimit,1,1\n",
        "window_name,elapsed_time,gpu0_energy\nx_100\n",
        "\x00\x00",
    ],
)
def test_a_file_that_is_no_recording_is_named(tmp_path, content):
    (tmp_path / "sweep.csv").write_text(content)
    with pytest.raises(InvalidValueError, match=r"sweep\.csv holds no recorded sweep"):
        read_sweep(tmp_path / "sweep.csv")
    with pytest.raises(InvalidValueError, match="can't be replayed"):
        RecordedGpu([])
