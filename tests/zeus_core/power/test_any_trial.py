"""Whatever a trial and its GPU do, in whatever order: what is noted is true, and the limit found is what stands."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.zeus_core.power.bench import Bench
from zeus_kfp.zeus_core.power import repair_limits
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.training.summary import Summary

MISHAPS = {
    "SET": [None, "denied", "ignored"],
    "LIMITS": [None, "unsupported"],
    "LOST": [None, "yes"],
    "LOST_1": [None, "yes"],
    "ENERGY": [None, "stuck", "unsupported"],
    "POWER": [None, "unsupported"],
    "LOWEST_MW": [None, "180000"],
    "HIGHEST_MW": [None, "200000"],
}
AS_IT_WAS = dict.fromkeys(MISHAPS)
mishap = st.sampled_from(sorted(MISHAPS)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(MISHAPS[name])))


class BatchError(Exception):
    """What goes wrong in a user's loop, and is caught there."""


@st.composite
def epoch(draw):
    steps = draw(st.integers(0, 60))
    return {
        "steps": steps,
        "told": draw(st.sampled_from([steps, None])),
        "step_s": draw(st.sampled_from([0.001, 0.1, 3.0])),
        "mishaps": draw(st.dictionaries(st.integers(0, 60), mishap, max_size=3)),
        "left_at": draw(st.sampled_from([None, 0, 7, 33])),
        "raises": draw(st.booleans()),
        "evals_at": draw(st.sampled_from([None, 0, 20])),
    }


def train(trial, gpus, told):
    batches = range(told["steps"]) if told["told"] is not None else iter(range(told["steps"]))
    for step in trial.train(batches):
        gpus.work(told["step_s"])
        if step in told["mishaps"]:
            name, value = told["mishaps"][step]
            gpus.set(**{name: value})
        if step == told["evals_at"]:
            for _ in trial.eval(range(3)):
                gpus.work(told["step_s"])
        if step == told["left_at"]:
            if told["raises"]:
                raise BatchError
            break


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    epochs=st.lists(epoch(), min_size=1, max_size=6),
    count=st.sampled_from(["1", "2"]),
    steps=st.tuples(st.integers(0, 5), st.integers(1, 8)),
    known_w=st.sampled_from([None, 150.0]),
)
def test_what_is_noted_is_true_and_the_limit_found_stands(fake_gpus, tmp_path_factory, epochs, count, steps, known_w):
    folder = tmp_path_factory.mktemp("trial")
    fake_gpus.set(**AS_IT_WAS, GPUS=count, STATE=str(folder / "gpus"))
    bench = Bench(fake_gpus, folder)
    trial = bench.trial(
        max_epochs=len(epochs),
        options=ProfilingOptions(warmup_steps=steps[0], profile_steps=steps[1]),
        plan={"power_limit_w": known_w},
    )
    for told, _ in zip(epochs, trial.epochs(), strict=False):
        try:
            train(trial, fake_gpus, told)
        except BatchError:
            pass
        trial.report_metric(0.0)
    trial.close()
    fake_gpus.set(**AS_IT_WAS)
    repair_limits()
    assert fake_gpus.limits_w() == [250.0] * int(count)
    summary = Summary.read(folder / "summary.json")
    assert summary.epochs == len(epochs)
    if summary.energy_j is not None:
        assert 99 < summary.energy_j / summary.time_s / int(count) < 251
    for row in summary.profiles:
        if row.power_limit_w is not None:
            # The fake GPU draws what its limit is.
            assert row.average_power_w == pytest.approx(row.power_limit_w * int(count), rel=0.02)
        assert 99 < row.average_power_w / int(count) < 251
        assert 0 < row.throughput_samples_per_s < math.inf
