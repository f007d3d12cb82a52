"""What goes wrong in the midst of a trial: a GPU that is lost, a fork, a handler of signals that raises."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.virtual_gpu import VIRTUAL_GPU
from zeus_kfp.zeus_core.power import repair_limits
from zeus_kfp.zeus_core.training.summary import Summary

FORK = (
    VIRTUAL_GPU
    + """
import os, signal, sys
from zeus_kfp.zeus_core.training import Trial
trial = Trial.local(batch_size=32, target_metric=1.0, max_epochs=3, directory={folder!r})
follow_the_gpu(trial)
for epoch in trial.epochs():
    for step in trial.train(range(400)):
        work(0.1)
        if epoch == 1 and not os.fork():
            {end}
        if epoch == 1:
            os.wait()
            os.kill(os.getpid(), signal.SIGKILL)
    trial.report_metric(0.5)
"""
)


def run(bench, mishap_at, mishap):
    trial = bench.trial()
    for epoch in trial.epochs():
        for step in trial.train(range(400)):
            bench.gpus.work(0.1)
            if (epoch, step) == (0, mishap_at):
                mishap()
        trial.report_metric(0.0)
    trial.close()
    return Summary.read(bench.folder / "summary.json")


def test_a_gpu_that_is_lost_has_no_energy_any_more_and_its_limit_is_put_back_once_it_is_there_again(bench, caplog):
    summary = run(bench, 120, lambda: bench.gpus.set(LOST="yes"))
    assert (summary.energy_j, summary.epochs, summary.power_limit_w) == (None, 3, None)
    assert [row.power_limit_w for row in summary.profiles] == [250, 225]
    assert bench.chosen == ["no power limit could be chosen: it can't be read what stands"]
    assert "the 250 W found on GPU 0 can't be put back" in caplog.text
    bench.gpus.set(LOST=None)
    assert bench.gpus.limits_w() == [200]
    repair_limits()
    assert bench.gpus.limits_w() == [250]


def test_a_limit_that_the_card_takes_no_more_is_put_back_as_closely_as_it_can_be(bench, caplog):
    run(bench, 120, lambda: bench.gpus.set(LOWEST_MW="180000", HIGHEST_MW="230000"))
    assert bench.gpus.limits_w() == [230]
    assert bench.chosen == ["no power limit could be chosen: 230 W stand"]
    assert "the 250 W found on GPU 0 can't be put back: NVML refuses" in caplog.text
    assert "230 W, the closest that it takes now, are set instead" in caplog.text
    bench.gpus.set(LOWEST_MW=None, HIGHEST_MW=None)
    repair_limits()
    assert bench.gpus.limits_w() == [250]


@pytest.mark.parametrize("end", ["sys.exit()", "1 / 0", "trial.close(); os._exit(0)"])
def test_a_process_that_training_forks_tells_nothing_of_its_own_end(fake_gpus, tmp_path, end):
    code = FORK.format(folder=str(tmp_path), end=end)
    done = subprocess.run([sys.executable, "-c", code], env=fake_gpus.environ, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["ending"], summary["epochs"]) == ("running", 1)
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 1


class LateError(Exception):
    """What a handler of signals raises, wherever the program is."""


def test_a_handler_that_raises_while_the_limit_is_chosen_leaves_it_to_be_chosen_again(bench):
    trial = bench.trial(eta_knob=1.0)
    epochs = trial.epochs()
    next(epochs)
    profiler = trial._power.profiler
    choose, tried = profiler._selector.choose, []

    def late(sweep):
        tried.append(sweep)
        if len(tried) == 1:
            raise LateError
        return choose(sweep)

    profiler._selector = SimpleNamespace(choose=late)
    with pytest.raises(LateError):
        for _ in trial.train(range(400)):
            bench.gpus.work(0.1)
    assert (len(tried), len(bench.chosen), profiler.is_done) == (2, 1, True)
    assert bench.gpus.limits_w() == [profiler.chosen_w]
    trial.close()
    assert bench.gpus.limits_w() == [250]
