"""Whole trials on GPUs of the fake NVML whose speed and power follow their limit."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.zeus_core.power.bench import LIMITS_W
from zeus_kfp.zeus_core.errors import InvalidValueError, MixedGpusError
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.profile import Phase
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.summary import Summary


def step_time(limit_w):
    """Return how many times as long a step takes under a limit of the fake GPU: 80 W idle, 280 W without a limit."""
    return (200 / (limit_w - 80)) ** (1 / 3)


def costs(eta, limits_w=tuple(LIMITS_W), max_power_w=300):
    return {w: (eta * w + (1 - eta) * max_power_w) * step_time(w) for w in limits_w}


def cheapest(eta, limits_w=tuple(LIMITS_W)):
    by_limit = costs(eta, limits_w)
    return min(by_limit, key=by_limit.get)


def rows_of(summary, phase=Phase.TRAIN):
    return {row.power_limit_w: row for row in summary.profiles if row.phase is phase}


@pytest.mark.parametrize("eta", [0.0, 0.3, 0.5, 1.0])
def test_every_limit_is_profiled_and_the_best_stays(bench, eta):
    summary = bench.run(eta_knob=eta)
    best = cheapest(eta)
    assert bench.steps[:350] == [w for w in LIMITS_W for _ in range(50)]
    assert set(bench.steps[350:]) == {best}
    assert [row.power_limit_w for row in summary.profiles] == LIMITS_W
    assert bench.gpus.limits_w() == [250]
    time_ratio = step_time(best) / step_time(250)
    assert bench.chosen[0] == (
        f"power limit {best} W chosen, after profiling 7 limits: {best / 250 * time_ratio - 1:+.1%} energy and "
        f"{time_ratio - 1:+.1%} time against 250 W"
    )
    assert (summary.power_limiter, summary.power_limit_found_w, summary.power_limit_w) == ("nvml", 250, best)


def test_rows_tell_power_and_throughput_of_the_measured_steps_alone(bench):
    rows = rows_of(bench.run())
    for limit_w, row in rows.items():
        assert row.average_power_w == pytest.approx(limit_w, rel=1e-4)
        assert row.throughput_samples_per_s == pytest.approx(32 / (0.1 * step_time(limit_w)), rel=1e-4)
        assert (row.batch_size, row.accelerator, row.accelerator_count) == (32, "Fake GPU", 1)
        assert not row.energy_estimated


def test_the_gpu_is_waited_for_at_the_edges_of_windows_only(bench):
    waits = []
    trial = bench.trial()
    trial._logbook._instrument._synchronize = lambda: waits.append(1)
    for _ in trial.epochs():
        for _ in trial.train(range(400)):
            bench.gpus.work(0.1)
        trial.report_metric(1.0)
    assert 14 <= len(waits) <= 35


@pytest.mark.parametrize(
    ("objective", "best"),
    [("energy", 125), ("time", 250), ("cost", cheapest(0.5)), ("slowdown:1.2", 200), ("slowdown:1", 250)],
)
def test_the_objective_can_be_chosen(bench, objective, best):
    bench.run(options=ProfilingOptions(objective=objective))
    assert bench.steps[-1] == best


def test_steps_range_and_distance_can_be_set(bench):
    options = ProfilingOptions(warmup_steps=4, profile_steps=20, step_w=50, lowest_w=125, highest_w=220)
    summary = bench.run(options=options)
    assert bench.steps[:48] == [220] * 24 + [170] * 24
    assert list(rows_of(summary)) == [220, 170]


def test_without_steps_of_warmup_the_gpu_still_gets_the_time_to_settle(bench):
    bench.run(options=ProfilingOptions(warmup_steps=0, profile_steps=20))
    assert bench.steps.index(225) in (22, 23)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 45, 120, 349, 350, 351])
def test_epochs_of_any_length_come_to_a_choice(bench, steps):
    summary = bench.run(steps=steps, step_s=1.0, max_epochs=120 if steps < 45 else 8)
    assert list(rows_of(summary)) == LIMITS_W
    assert bench.steps[-1] == cheapest(0.5)
    assert bench.limits_after_the_sweep == {cheapest(0.5)}
    for limit_w, row in rows_of(summary).items():
        assert row.average_power_w == pytest.approx(limit_w, rel=1e-4)


def test_windows_shrink_to_fit_into_one_epoch(bench):
    bench.run(steps=100, step_s=1.0)
    assert set(bench.steps[100:]) == {cheapest(0.5)}


def test_a_window_goes_on_over_epochs_and_not_from_its_start(bench):
    summary = bench.run(steps=45, step_s=0.002, eval_steps=3, max_epochs=400)
    assert bench.limits_after_the_sweep == {cheapest(0.5)}
    assert len(rows_of(summary)) == 7
    # 0.2 s of warm-up and 1 s of windows at each limit, and a step of warm-up after each pause.
    assert bench.steps.index(225) < 1.3 / (0.002 * step_time(250))


def test_each_step_of_a_window_that_an_epoch_cuts_counts_once(bench):
    # Epochs of 9 steps; a limit takes 1 step of warm-up and 5 of window, and 1 of warm-up where an epoch cuts it.
    bench.run(steps=9, step_s=1.0, max_epochs=20)
    assert [bench.steps[:47].count(limit_w) for limit_w in LIMITS_W] == [6, 7, 7, 6, 7, 7, 7]
    assert bench.steps[47:] == [cheapest(0.5)] * (9 * 20 - 47)


def test_a_window_is_never_shorter_than_the_meter_can_be_trusted(bench):
    bench.run(steps=20_000, step_s=0.001, max_epochs=1)
    at = [bench.steps.count(w) * 0.001 * step_time(w) for w in LIMITS_W if w != cheapest(0.5)]
    # A second of window, after the 0.2 s in which the GPU settles.
    assert all(1.2 <= time_s < 1.3 for time_s in at)


def test_steps_of_many_seconds_need_fewer_of_them(bench):
    bench.run(steps=400, step_s=10.0, max_epochs=1)
    # 10 steps of warm-up, since nothing is known before, and from then on 5 s of warm-up and 30 s of window.
    assert [bench.steps[:51].count(w) for w in LIMITS_W] == [15, 6, 6, 6, 6, 6, 6]
    assert set(bench.steps[51:]) == {cheapest(0.5)}


def test_a_trial_too_short_for_all_limits_decides_with_what_it_knows(bench):
    summary = bench.run(steps=100, step_s=0.01, max_epochs=4)
    known = rows_of(summary)
    assert 0 < len(known) < 7
    assert set(bench.steps[200:]) == {cheapest(0.5, tuple(known))}
    assert f"after profiling {len(known)} of 7 limits" in bench.chosen[0]


def test_a_trial_too_short_for_any_limit_leaves_it_as_found(bench):
    summary = bench.run(steps=3, step_s=0.01, max_epochs=4)
    assert (rows_of(summary), set(bench.steps)) == ({}, {250})
    assert bench.chosen == ["no power limit could be chosen: 250 W stand"]


def test_evaluation_gives_rows_of_its_own(bench):
    summary = bench.run(eval_steps=20)
    assert set(bench.evals) == {cheapest(0.5)}
    [row] = rows_of(summary, Phase.EVAL).values()
    assert (row.power_limit_w, row.average_power_w) == (cheapest(0.5), pytest.approx(cheapest(0.5), rel=1e-4))


def test_an_evaluation_inside_the_training_loop_is_in_no_window(bench):
    trial = bench.trial()
    for _ in trial.epochs():
        for step in trial.train(range(400)):
            bench.gpus.work(0.1)
            if step % 30 == 0:
                for _ in trial.eval(range(2)):
                    bench.gpus.work(3.0)
        trial.report_metric(0.0)
    rows = rows_of(Summary.read(bench.folder / "summary.json"))
    assert {w: row.throughput_samples_per_s for w, row in rows.items()} == pytest.approx(
        {w: 32 / (0.1 * step_time(w)) for w in LIMITS_W}, rel=1e-4
    )


def test_a_loop_that_is_left_each_time_comes_to_a_choice(bench):
    trial = bench.trial(max_epochs=80)
    for _ in trial.epochs():
        for step in trial.train(range(1000)):
            bench.steps.append(bench.gpus.limits_w()[0])
            bench.gpus.work(0.5)
            if step == 10:
                break
        trial.report_metric(0.0)
    assert bench.steps[-1] == cheapest(0.5)


@pytest.mark.parametrize("epochs_without_training", [(0, 1, 2), (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)])
def test_epochs_that_only_evaluate_neither_hang_nor_profile(bench, epochs_without_training):
    trial = bench.trial(max_epochs=10)
    for epoch in trial.epochs():
        for _ in trial.train(range(0 if epoch in epochs_without_training else 400)):
            bench.steps.append(bench.gpus.limits_w()[0])
            bench.gpus.work(0.1)
        for _ in trial.eval(range(20)):
            bench.gpus.work(0.1)
        trial.report_metric(0.0)
    trial.close()
    summary = Summary.read(bench.folder / "summary.json")
    never_trained = len(epochs_without_training) == 10
    assert list(rows_of(summary)) == ([] if never_trained else LIMITS_W)
    assert (len(bench.chosen), bench.gpus.limits_w()) == (1, [250])
    assert summary.power_limit_w == (None if never_trained else cheapest(0.5))
    assert sum(row.average_power_w > 0 for row in rows_of(summary, Phase.EVAL).values()) >= 1


def test_a_loader_without_a_length_is_profiled(bench):
    trial = bench.trial()
    for _ in trial.epochs():
        for _ in trial.train(iter(range(400))):
            bench.gpus.work(0.1)
        trial.report_metric(0.0)
    assert len(rows_of(Summary.read(bench.folder / "summary.json"))) == 7


def test_a_plan_that_knows_the_limit_sets_it_from_step_one(bench):
    summary = bench.run(plan={"power_limit_w": 175.0}, eval_steps=2)
    assert set(bench.steps) == {175}
    assert list(rows_of(summary)) == [175.0]
    assert bench.gpus.limits_w() == [250]


@pytest.mark.parametrize(("model", "first_w"), [("Fake GPU", 175), ("Other GPU", 250)])
def test_a_limit_known_of_another_model_is_found_anew(bench, model, first_w):
    summary = bench.run(plan={"power_limit_w": 175.0, "power_limit_accelerator": model})
    assert bench.steps[0] == first_w
    assert len(rows_of(summary)) == (1 if first_w == 175 else 7)


def test_a_limit_known_for_another_objective_is_found_anew(bench):
    summary = bench.run(options=ProfilingOptions(objective="time"), plan={"power_limit_w": 150.0})
    assert (bench.steps[0], bench.steps[-1], summary.power_limit_w) == (250, 250, 250)
    assert sorted(set(bench.steps), reverse=True) == LIMITS_W


def test_an_estimate_profiles_no_limit(bench):
    bench.gpus.set(ENERGY="unsupported", POWER="unsupported", UTILISATION="50")
    summary = bench.run()
    assert (summary.energy_source, summary.energy_estimated) == ("nvml-utilisation", True)
    assert (set(bench.steps), summary.power_limit_w) == ({250}, None)


def test_a_known_limit_respects_this_card(bench):
    bench.run(plan={"power_limit_w": 60.0})
    assert set(bench.steps) == {100}


def test_where_nothing_can_be_set_the_trial_is_measured_all_the_same(bench, caplog):
    bench.gpus.set(SET="denied")
    summary = bench.run(plan={"power_limit_w": 175.0})
    assert set(bench.steps) == {250}
    assert list(rows_of(summary)) == [250.0]
    assert (summary.power_limiter, summary.power_limit_found_w, summary.power_limit_w) == ("observe only", 250, None)
    assert len(caplog.records) == 1


def test_permission_lost_midway_keeps_what_was_measured(bench, caplog):
    trial = bench.trial()
    for _ in trial.epochs():
        for step in trial.train(range(400)):
            if step == 120:
                bench.gpus.set(SET="ignored")
            bench.gpus.work(0.1)
        trial.report_metric(0.0)
    trial.close()
    rows = rows_of(Summary.read(bench.folder / "summary.json"))
    assert list(rows) == [250, 225, 200]
    assert "175 W were asked for on GPU 0, but 200 W stand" in caplog.text


@pytest.mark.parametrize("leave", [KeyboardInterrupt, RuntimeError, StopIteration])
def test_a_loop_that_fails_leaves_the_gpu_as_it_was(bench, leave):
    trial = bench.trial()
    with pytest.raises((leave, RuntimeError)):
        for _ in trial.epochs():
            for step in trial.train(range(400)):
                bench.gpus.work(0.1)
                if step == 130:
                    raise leave
    trial.close()
    assert bench.gpus.limits_w() == [250]


def test_the_early_stop_knows_what_the_next_epoch_takes_at_the_chosen_limit(bench):
    # An epoch of 400 steps at the chosen limit, against one in which all limits are profiled.
    settled = costs(0.5)[cheapest(0.5)] * 400 * 0.1
    profiled = sum(costs(0.5).values()) * 50 * 0.1 + costs(0.5)[cheapest(0.5)] * 50 * 0.1
    assert profiled > settled * 1.03
    bench.run(cost_threshold=profiled + settled * 1.01, max_epochs=9)
    assert len(bench.steps) == 800
    lines = [json.loads(line) for line in (bench.folder / "history.jsonl").read_text().splitlines()]
    assert [line["cost"] for line in lines] == pytest.approx([profiled, settled], rel=1e-4)


def test_the_early_stop_comes_before_the_epoch_that_would_cross(bench):
    settled = costs(0.5)[cheapest(0.5)] * 400 * 0.1
    profiled = sum(costs(0.5).values()) * 50 * 0.1 + costs(0.5)[cheapest(0.5)] * 50 * 0.1
    summary = bench.run(cost_threshold=profiled + settled * 0.99, max_epochs=9)
    assert len(bench.steps) == 400
    assert f"another epoch of about {settled:.4g} J would cross" in summary.reason


def test_gpus_of_different_models_are_refused_by_name(fake_gpus, tmp_path):
    fake_gpus.set(GPUS="2", NAME_1="Other GPU")
    with pytest.raises(MixedGpusError, match="not 0: Fake GPU, 1: Other GPU: name those of one model in CUDA_VISIBLE"):
        Trial.local(batch_size=8, target_metric=1.0, directory=tmp_path)


def test_an_option_that_cannot_be_stops_a_trial_before_it_begins(fake_gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("ZEUS_KFP_POWER_OBJECTIVE", "speed")
    with pytest.raises(InvalidValueError, match="ZEUS_KFP_POWER_OBJECTIVE='speed'"):
        Trial.local(batch_size=8, target_metric=1.0, directory=tmp_path)


@pytest.mark.parametrize("ending", ["sys.exit(1)", "raise ValueError('x')", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_a_script_that_ends_in_its_loop_leaves_the_gpu_as_it_was(fake_gpus, tmp_path, ending):
    code = f"""
import os, signal, sys
from zeus_kfp.zeus_core.training import Trial
trial = Trial.local(batch_size=8, target_metric=1.0, directory={str(tmp_path)!r}, eta_knob=1.0)
for epoch in trial.epochs():
    for step in trial.train(range(1000)):
        if trial._power.profiler._standing_w < 200:
            {ending}
        trial._power.profiler._shortest_s = dict.fromkeys(trial._power.profiler._shortest_s, 0.0)
"""
    done = subprocess.run([sys.executable, "-c", code], env=fake_gpus.environ, capture_output=True, text=True)
    assert done.returncode != 0
    assert fake_gpus.set_count() > 2
    assert fake_gpus.limits_w() == [250]


def test_a_known_limit_that_is_refused_is_not_said_to_be_set(bench, caplog):
    trial = bench.trial(plan={"power_limit_w": 175.0})
    bench.gpus.set(SET="ignored")
    for _ in trial.epochs():
        for _ in trial.train(range(100)):
            bench.gpus.work(0.1)
        trial.report_metric(0.0)
    trial.close()
    summary = Summary.read(bench.folder / "summary.json")
    assert "power limit 175 W, known from earlier trials, can't be set: 250 W stands" in bench.said
    assert not [line for line in bench.said if "W set" in line]
    assert summary.power_limit_w is None
    assert list(rows_of(summary)) == [250]


NO_ROW_OF = {60: 225, 49: 250, 149: 200}


@pytest.mark.parametrize("step", NO_ROW_OF)
def test_after_a_signal_whose_handler_returns_nothing_counts_under_the_limit_before(bench, step):
    noted = []
    before = signal.signal(signal.SIGTERM, lambda *_: noted.append(1))
    try:
        trial = bench.trial()
        for epoch in trial.epochs():
            for index in trial.train(range(400)):
                bench.gpus.work(0.1)
                if (epoch, index) == (0, step):
                    os.kill(os.getpid(), signal.SIGTERM)
                    assert bench.gpus.limits_w() == [250]
            trial.report_metric(0.0)
        trial.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    summary = Summary.read(bench.folder / "summary.json")
    # The window that the signal has cut makes no row; those before it do, and power is that of their limit.
    # Without any window left, the rest at the limit found makes one.
    measured = [limit_w for limit_w in LIMITS_W if limit_w > NO_ROW_OF[step]] or [250]
    rows = rows_of(summary)
    assert list(rows) == measured
    assert [row.average_power_w for row in rows.values()] == pytest.approx(measured, rel=1e-4)
    assert (noted, summary.power_limit_w) == ([1], None)
    assert bench.chosen == ["no power limit could be chosen: 250 W stand"]


def test_after_a_signal_a_known_limit_counts_up_to_it(bench):
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        trial = bench.trial(plan={"power_limit_w": 150.0})
        for epoch in trial.epochs():
            for index in trial.train(range(400)):
                if (epoch, index) == (1, 0):
                    os.kill(os.getpid(), signal.SIGTERM)
                bench.gpus.work(0.1)
            trial.report_metric(0.0)
        trial.close()
    finally:
        signal.signal(signal.SIGTERM, before)
    summary = Summary.read(bench.folder / "summary.json")
    rows = rows_of(summary)
    assert list(rows) == [150, 250]
    assert rows[250].average_power_w == pytest.approx(250, rel=1e-3)
    assert rows[150].average_power_w == pytest.approx(150, rel=1e-2)
    assert summary.power_limit_w is None
