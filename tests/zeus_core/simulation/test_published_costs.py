"""The `zeus` policy costs what the published simulator says it costs, for the same seed."""

import contextlib
import os
from pathlib import Path

import pytest

from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.simulation import recorded_job, recorded_truth, replay

published = pytest.importorskip("zeus._legacy.policy.optimizer", reason="zeus==0.16.0 is not installed")
published_job = pytest.importorskip("zeus._legacy.job", reason="zeus==0.16.0 is not installed")
published_simulate = pytest.importorskip("zeus._legacy.simulate", reason="zeus==0.16.0 is not installed")
pandas = pytest.importorskip("pandas")

pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero"),
    pytest.mark.filterwarnings("ignore:predict_expectations called when arm"),
]
# Data set: network, optimizer, target, max_epochs, default batch size of the paper's jobs.
JOBS = {
    "cifar100": ("shufflenetv2", "adadelta", 0.6, 100, 1024),
    "librispeech": ("deepspeech2", "adamw", 40.0, 16, 192),
    "movielens-1m": ("ncf", "adam", 0.41, 100, 1024),
    "sentiment140": ("bert_base_uncased", "adamw", 0.84, 10, 128),
}


def published_history(
    files: tuple[Path, Path], dataset: str, seed: int, recurrences: int, eta_knob: float, beta_knob: float
):
    network, optimizer, target, max_epochs, default = JOBS[dataset]
    job = published_job.Job(dataset, network, optimizer, target, max_epochs, default)
    simulator = published_simulate.Simulator(
        *map(pandas.read_csv, files),
        published.PruningGTSBatchSizeOptimizer(seed=seed, verbose=False),
        published.JITPowerLimitOptimizer(verbose=False),
        seed=seed,
        verbose=False,
    )
    # It prints whenever a threshold allows no epoch.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        return simulator.simulate_one_job(job, recurrences, beta_knob, eta_knob)


@pytest.mark.parametrize("dataset", JOBS)
@pytest.mark.parametrize("gpu", ["v100", "a40"])
@pytest.mark.parametrize(("seed", "eta_knob", "beta_knob"), [(1, 0.5, 2.0), (7, 0.0, 1.5)])
def test_every_trial_is_the_published_one(trace_files, gpu, dataset, seed, eta_knob, beta_knob) -> None:
    _, _, target, max_epochs, default = JOBS[dataset]
    files = trace_files(gpu)
    truth = recorded_truth(*files, target, dataset=dataset)
    job = recorded_job(
        truth,
        default_batch_size=default,
        target_metric=target,
        max_epochs=max_epochs,
        eta_knob=eta_knob,
        beta_knob=beta_knob,
        seed=seed,
    )
    ours = replay(job, truth, policy_named("zeus"), 60, seed)
    theirs = published_history(files, dataset, seed, 60, eta_knob, beta_knob)
    ran = [trial for trial in ours.trials if trial.outcome.epochs]
    assert [(t.batch_size, t.outcome.power_limit_w) for t in ran] == [(entry.bs, entry.pl) for entry in theirs]
    assert ours.energy_j == pytest.approx(sum(entry.energy for entry in theirs), rel=1e-9)
    assert ours.time_s == pytest.approx(sum(entry.time for entry in theirs), rel=1e-9)
    cost = sum(eta_knob * e.energy + (1 - eta_knob) * truth.max_power_w * e.time for e in theirs)
    assert ours.cost == pytest.approx(cost, rel=1e-9)
