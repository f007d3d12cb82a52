"""What each batch-size policy costs above the oracle, on recorded and on made-up jobs; fails where `bayes` falls short.

    ZEUS_KFP_SHARED_DATA=… python benchmarks/policy_regret.py [--seeds 20]

Regret is what was spent above the best fixed batch size and power limit, as a share of that; eta 0.5 and beta 2
unless a line says otherwise. "Default" is the user's batch size at its best power limit from the first recurrence on.
"Left out" is the worst ratio of regrets once the jobs of any one data set are left out. Made-up jobs have curves of
the family in `made_up_jobs`, which no constant of the policy was chosen by. The published simulator (`zeus==0.16.0`,
`pip install --no-deps`, and pandas) is timed beside ours where it is installed.
"""

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.console import Console
from rich.table import Table

from zeus_kfp.zeus_core import drift
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.simulation import (
    PLAIN,
    Change,
    ChangeKind,
    EpochPower,
    JobTruth,
    Scenario,
    SizeTruth,
    default,
    oracle,
    recorded_job,
    recorded_truth,
    replay,
    replay_seeds,
)

TRACES = Path(os.environ.get("ZEUS_KFP_SHARED_DATA", "")) / "zeus-traces"
GPUS = ("v100", "a40")
# Network, optimizer, target, max_epochs and default batch size of the paper's jobs.
RECORDED = {
    "cifar100": ("shufflenetv2", "adadelta", 0.6, 100, 1024),
    "librispeech": ("deepspeech2", "adamw", 40.0, 16, 192),
    "movielens-1m": ("ncf", "adam", 0.41, 100, 1024),
    "sentiment140": ("bert_base_uncased", "adamw", 0.84, 10, 128),
}
OURS, THEIRS = "bayes", "zeus"
RECURRENCES = 50


@dataclass(frozen=True)
class Case:
    """A job to replay: a name, the data set that it belongs to, its knobs and its truth."""

    name: str
    family: str
    job: JobSpec
    truth: JobTruth

    def cost(self, policy: str, seeds: int, recurrences: int = RECURRENCES, scenario: Scenario = PLAIN) -> np.ndarray:
        """Return the mean cost in J of every recurrence."""
        replays = replay_seeds(self.job, self.truth, policy_named(policy), recurrences, range(seeds), scenario)
        return np.mean([one.recurrence_costs() for one in replays], axis=0)

    def regret(self, policy: str, seeds: int, recurrences: int = RECURRENCES, scenario: Scenario = PLAIN) -> float:
        """Return the mean regret after all recurrences."""
        best = oracle(self.job, self.truth, recurrences, scenario).cost
        return float(self.cost(policy, seeds, recurrences, scenario).sum() / best - 1)

    def with_knobs(self, **knobs: object) -> "Case":
        """Return the case with other knobs."""
        return replace(self, job=replace(self.job, **knobs))


@dataclass(frozen=True)
class Check:
    """One figure and what it must not exceed."""

    name: str
    figure: float
    limit: float

    @property
    def is_met(self) -> bool:
        """Whether it does not."""
        return self.figure <= self.limit


def recorded_cases() -> list[Case]:
    cases = []
    for gpu in GPUS:
        for dataset, (network, optimizer, target, max_epochs, size) in RECORDED.items():
            truth = recorded_truth(
                TRACES / "summary_train.csv",
                TRACES / f"summary_power_{gpu}.csv",
                target,
                dataset=dataset,
                network=network,
                optimizer=optimizer,
            )
            job = recorded_job(truth, default_batch_size=size, target_metric=target, max_epochs=max_epochs)
            cases.append(Case(f"{gpu} {dataset}", dataset, job, truth))
    return cases


def every_default(cases: Sequence[Case]) -> Iterator[Case]:
    """Give each case once for every batch size that reaches the target at least sometimes, as the default."""
    for case in cases:
        priced = case.truth.priced(case.job.eta_knob)
        for size in case.job.batch_sizes:
            if math.isfinite(priced[size].mean_cost(case.job.max_epochs)):
                yield replace(case, name=f"{case.name} from {size}").with_knobs(default_batch_size=size)


def made_up_jobs(count: int, seed: int = 7) -> Iterator[Case]:
    """Give jobs whose epochs rise beyond a critical batch size, whose epochs get cheap until the GPU is busy."""
    rng = np.random.default_rng(seed)
    while count:
        truth, max_epochs = _made_up_truth(rng), int(rng.choice([30, 100, 300]))
        reaching = [s for s, priced in truth.priced(0.5).items() if math.isfinite(priced.mean_cost(max_epochs))]
        if not reaching:
            continue
        count -= 1
        start = int(rng.choice(reaching))
        job = recorded_job(truth, default_batch_size=start, target_metric=0.5, max_epochs=max_epochs)
        yield Case(f"made up {count}", "made up", job, truth)


def _made_up_truth(rng: np.random.Generator) -> JobTruth:
    smallest, count = int(rng.integers(2, 6)), int(rng.integers(3, 14))
    octaves = np.arange(smallest, smallest + count, dtype=float)
    critical, busy = rng.uniform(smallest - 1, smallest + count + 1, size=2)
    epochs = math.exp(rng.uniform(math.log(2), math.log(60))) * (
        1 + 2 ** ((octaves - critical) * rng.uniform(0.8, 1.4))
    )
    epochs *= np.exp(rng.choice([0, 0.05, 0.15]) * rng.normal(size=count))
    cost = math.exp(rng.uniform(8, 14)) * (1 + 2 ** (busy - octaves))
    noise, waste = rng.choice([0.03, 0.08, 0.2]), rng.uniform(0.02, 0.5)
    sizes = {}
    for index in range(count):
        runs = np.maximum(np.round(epochs[index] * np.exp(noise * rng.normal(size=6))), 1)
        limits = np.linspace(100, 300, 7)
        power = [
            EpochPower(w, c * w / 300, c / 300) for w, c in zip(limits, _limit_costs(cost[index], waste), strict=True)
        ]
        sizes[int(2 ** octaves[index])] = SizeTruth(tuple(float(run) for run in runs), tuple(power))
    return JobTruth(sizes, 300.0)


def _limit_costs(cost: float, waste: float) -> np.ndarray:
    """Return an epoch's time times 300 W at seven power limits, the slowest first."""
    return cost * (1 + waste * np.linspace(1, 0, 7) ** 2)


def regret_checks(cases: Sequence[Case], seeds: int, table: Table) -> Iterator[Check]:
    """Give the figures on the paper's jobs, and write a row for each job."""
    ratios: dict[str, tuple[float, float]] = {}
    worst = {"zeus": -math.inf, "default": -math.inf, "early": -math.inf}
    for case in cases:
        best = oracle(case.job, case.truth, RECURRENCES).cost
        plain = default(case.job, case.truth, RECURRENCES)
        ours, theirs = case.cost(OURS, seeds), case.cost(THEIRS, seeds)
        regrets = [float(costs.sum() / best - 1) for costs in (ours, theirs)]
        above = float(ours.sum() / plain.cost - 1)
        early = float(ours[:10].sum() / sum(plain.recurrence_costs[:10]) - 1)
        ratios[case.name] = (regrets[0], regrets[1])
        worst["zeus"] = max(worst["zeus"], regrets[0] - regrets[1])
        worst["default"], worst["early"] = max(worst["default"], above), max(worst["early"], early)
        table.add_row(case.name, *(f"{share:+.1%}" for share in (*regrets, above, early)))
    yield Check("regret, share of zeus's", _ratio(ratios.values()), 0.4)
    families = {case.family for case in cases}
    left_out = [_ratio(ratios[c.name] for c in cases if c.family != family) for family in families]
    yield Check("  worst with a data set left out", max(left_out), 0.5)
    yield Check("worst job, above zeus (of oracle)", worst["zeus"], 0.01)
    yield Check("worst job, above default", worst["default"], 0.03)
    yield Check("worst job, above default, first 10", worst["early"], 0.15)


def _ratio(pairs: "Sequence[tuple[float, float]] | Iterator[tuple[float, float]]") -> float:
    ours, theirs = zip(*pairs, strict=True)
    return fmean(ours) / fmean(theirs)


def _regrets(cases: Sequence[Case], seeds: int) -> float:
    """Return the ratio of mean regrets; one of more than the oracle's whole cost counts as that."""
    return _ratio([(min(c.regret(OURS, seeds), 1.0), min(c.regret(THEIRS, seeds), 1.0)) for c in cases])


def other_checks(cases: Sequence[Case], seeds: int) -> Iterator[Check]:
    fewer = max(seeds // 4, 1)
    for eta in (0.0, 0.25, 0.75, 1.0):
        priced = [case.with_knobs(eta_knob=eta) for case in cases]
        yield Check(f"regret at eta {eta:g}, share of zeus's", _regrets(priced, max(seeds // 2, 1)), 0.6)
    yield Check("regret from every default, share of zeus's", _regrets(list(every_default(cases)), fewer), 0.8)
    yield Check("regret on made-up jobs, share of zeus's", _regrets(list(made_up_jobs(40)), fewer), 0.8)
    long = [2 * len(c.truth.sizes) * len(next(iter(c.truth.sizes.values())).power) for c in cases]
    pairs = [(c.regret(OURS, fewer, n), c.regret(THEIRS, fewer, n)) for c, n in zip(cases, long, strict=True)]
    yield Check("regret after 2|B||P|, share of zeus's", _ratio(pairs), 1.0)
    overlapping = Scenario(overlap=3)
    pairs = [(c.regret(OURS, seeds, scenario=overlapping), c.regret(OURS, seeds)) for c in cases]
    yield Check("three at once, times one at a time", _ratio(pairs), 1.3)


def change_checks(cases: Sequence[Case], seeds: int) -> Iterator[Check]:
    """Give the figures where the GPU or the data changes midway, counted from the change on."""
    gpu = [(_after_change(a, b, kind, seeds)) for kind in GPU_CHANGES for a, b in _gpu_pairs(cases)]
    half = len(gpu) // 2
    yield Check("V100 to A40, share of starting over", fmean(gpu[:half]) / fmean(gpu[half:]), 0.5)
    drifted = [_drifted(case, target) for case in cases for target in DRIFTS.get(case.family, ())]
    after = [_after_change(a, b, ChangeKind.DRIFT, seeds, skipped=10) for a, b in drifted]
    yield Check("drift, regret from 10 recurrences after it", fmean(after), 0.15)
    wary = fmean(case.regret(OURS, seeds) for case in cases)
    usual, drift.SURPRISE = drift.SURPRISE, math.inf
    yield Check(
        "drift detector where nothing drifts (of oracle)", wary - fmean(c.regret(OURS, seeds) for c in cases), 0.02
    )
    drift.SURPRISE = usual


GPU_CHANGES = (ChangeKind.GPU, ChangeKind.GPU_FORGETTING_ALL)
# Targets that stand for other data: easier, and harder where the default still reaches.
DRIFTS = {"cifar100": (0.5,), "librispeech": (50.0, 35.0), "movielens-1m": (0.375,)}


def _gpu_pairs(cases: Sequence[Case]) -> list[tuple[Case, Case]]:
    return [
        (a, b) for a in cases for b in cases if a.family == b.family and (a.name[:4], b.name[:3]) == ("v100", "a40")
    ]


def _drifted(case: Case, target: float) -> tuple[Case, Case]:
    gpu = case.name.split()[0]
    paths = TRACES / "summary_train.csv", TRACES / f"summary_power_{gpu}.csv"
    return case, replace(case, truth=recorded_truth(*paths, target, dataset=case.family))


def _after_change(before: Case, after: Case, kind: ChangeKind, seeds: int, skipped: int = 0) -> float:
    """Return the regret in the recurrences after a change at the 31st, the first ``skipped`` of them left out."""
    shared = tuple(size for size in before.job.batch_sizes if size in after.truth.sizes)
    case, scenario = before.with_knobs(batch_sizes=shared), Scenario(changes=(Change(31, after.truth, kind),))
    best = oracle(case.job, case.truth, 80, scenario).recurrence_costs[30 + skipped :]
    return float(case.cost(OURS, seeds, 80, scenario)[30 + skipped :].sum() / sum(best) - 1)


def speed_checks(cases: Sequence[Case]) -> Iterator[Check]:
    case = max(cases, key=lambda c: len(c.job.batch_sizes))
    trials = len(replay(case.job, case.truth, policy_named(OURS), 200, 0).trials)
    took = _seconds(lambda: replay(case.job, case.truth, policy_named(OURS), 200, 0))
    yield Check(f"ms a trial, {len(case.job.batch_sizes)} sizes", 1000 * took / trials, 2.0)
    with contextlib.suppress(ImportError):
        theirs = fmean(_published_seconds(case) for case in cases)
        ours = fmean(_seconds(lambda c=case: replay(c.job, c.truth, policy_named(THEIRS), 50, 0)) for case in cases)
        yield Check("our simulator's time, share of the published", ours / theirs, 1 / 20)


def _published_seconds(case: Case) -> float:
    import pandas
    from zeus._legacy.job import Job
    from zeus._legacy.policy.optimizer import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer
    from zeus._legacy.simulate import Simulator

    gpu, dataset = case.name.split()
    network, optimizer, target, max_epochs, size = RECORDED[dataset]
    simulator = Simulator(
        pandas.read_csv(TRACES / "summary_train.csv"),
        pandas.read_csv(TRACES / f"summary_power_{gpu}.csv"),
        PruningGTSBatchSizeOptimizer(seed=0, verbose=False),
        JITPowerLimitOptimizer(verbose=False),
        seed=0,
        verbose=False,
    )
    job = Job(dataset, network, optimizer, target, max_epochs, size)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        return _seconds(lambda: simulator.simulate_one_job(job, 50, 2.0, 0.5), repeats=1)


def _seconds(run: Callable[[], object], repeats: int = 3) -> float:
    """Return the fewest seconds of processor time that ``run`` takes."""
    best = math.inf
    for _ in range(repeats):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="seeds for the paper's jobs; other lines use fewer")
    seeds = parser.parse_args().seeds
    if not (TRACES / "summary_train.csv").is_file():
        print("skipped: ZEUS_KFP_SHARED_DATA names no folder with zeus-traces/summary_train.csv")
        return
    console, cases = Console(width=110), recorded_cases()
    jobs = Table(title=f"{RECURRENCES} recurrences, {seeds} seeds: regret, and cost above the default batch size")
    for heading in ("job", OURS, THEIRS, f"{OURS} above default", "first 10"):
        jobs.add_column(heading, justify="left" if heading == "job" else "right")
    checks = [
        *regret_checks(cases, seeds, jobs),
        *other_checks(cases, seeds),
        *change_checks(cases, max(seeds // 4, 1)),
        *speed_checks(cases),
    ]
    console.print(jobs)
    figures = Table(title="what must hold")
    for heading in ("figure", "is", "at most", ""):
        figures.add_column(heading, justify="left" if heading == "figure" else "right")
    for check in checks:
        figures.add_row(
            check.name, f"{check.figure:.3f}", f"{check.limit:.3f}", "ok" if check.is_met else "FALLS SHORT"
        )
    console.print(figures)
    sys.exit(0 if all(check.is_met for check in checks) else 1)


if __name__ == "__main__":
    main()
