"""The demonstration on a simulated GPU: the real pipeline, the real NVML binding, a library of our own."""

import os
import shutil

import pytest
from rich.console import Console

from zeus_kfp.pipelines.demo.fake_gpu import STEP_VARIABLE, build, fake_gpu, step_on_gpu
from zeus_kfp.pipelines.demo.run import JOB, run_demo
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core.errors import InvalidValueError

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the fake NVML with")


@needs_compiler
def test_the_limit_chosen_is_where_a_later_trial_starts_and_is_put_back_after_each(tmp_path, fake_gpus, monkeypatch):
    # At one batch size, so that the second trial is one whose profile is known.
    monkeypatch.setitem(JOB, "batch_sizes", [16])
    monkeypatch.setitem(JOB, "default_batch_size", 16)
    # Far enough for the second that each of three limits takes.
    monkeypatch.setitem(JOB, "target_metric", 0.985)
    # A quarter less or more from limit to limit, whatever a loaded machine does to the steps.
    monkeypatch.setitem(JOB, "power_objective", "energy")
    monkeypatch.setenv("ZEUS_KFP_POWER_STEP_W", "100")
    assert run_demo(tmp_path, 2, Console(quiet=True), "fake-gpu") == 0
    with StateStore(f"sqlite:///{tmp_path / 'store.db'}") as store:
        first, second = sorted(store.trials("digits-fake-gpu"), key=lambda trial: trial.number)
        records = store.profiles("digits-fake-gpu")
    rows = {
        trial.number: {
            record.profile.power_limit_w: record.profile
            for record in records
            if record.trial_number == trial.number and record.profile.phase == "train"
        }
        for trial in (first, second)
    }
    assert (first.energy_source, first.energy_estimated, first.accelerator) == ("nvml", False, "simulated GPU")
    assert list(rows[first.number]) == [300, 200, 100]
    powers_w = [row.average_power_w for row in rows[first.number].values()]
    assert powers_w == pytest.approx([280, 200, 100], rel=0.02)
    energies_j = {w: row.average_power_w / row.throughput_samples_per_s for w, row in rows[first.number].items()}
    best_w = min(energies_j, key=energies_j.get)
    assert best_w < 300
    assert (first.power_limit_found_w, first.power_limit_w) == (300, best_w)
    # Nothing is profiled again: all of the second trial runs at that limit.
    assert (second.power_limit_found_w, second.power_limit_w, list(rows[second.number])) == (300, best_w, [best_w])
    assert (
        f"power limit {best_w:g} W set, known from earlier trials"
        in (tmp_path / "logs" / "recurrence-002.log").read_text()
    )
    assert STEP_VARIABLE not in os.environ
    fake_gpus.set(STATE=str(tmp_path / "gpu" / "state"), LIMIT_MW=None)
    assert (fake_gpus.limits_w(), fake_gpus.set_count() > 5) == ([300], True)


@needs_compiler
def test_the_environment_is_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/lib/of/mine")
    before = dict(os.environ)
    with fake_gpu(tmp_path):
        assert os.environ["LD_LIBRARY_PATH"] == f"{tmp_path}:/lib/of/mine"
    assert dict(os.environ) == before


def test_without_a_compiler_people_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InvalidValueError, match="a fake GPU needs a C compiler"):
        build(tmp_path)


def test_without_a_fake_gpu_a_step_takes_no_time_of_its(monkeypatch):
    monkeypatch.delenv(STEP_VARIABLE, raising=False)
    assert step_on_gpu()(64) is None


def test_a_device_that_is_none_is_named(tmp_path):
    with pytest.raises(InvalidValueError, match="device must be cpu or fake-gpu, not 'tpu'"):
        run_demo(tmp_path, 1, Console(quiet=True), "tpu")
