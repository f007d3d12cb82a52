"""What each batch-size policy costs above the oracle, on recorded and on made-up jobs; fails where `bayes` falls short.

    ZEUS_KFP_SHARED_DATA=… python benchmarks/policy_regret.py [--seeds 20]

Regret is what was spent above the best fixed batch size and power limit, as a share of that; eta 0.5 and beta 2
unless a line says otherwise. "Default" is the user's batch size at its best power limit from the first recurrence on.

The policy's constants were chosen looking at the recorded jobs. "Left out" says what that is worth: the jobs of each
data set are replayed with slopes and curvatures that were estimated from the other data sets alone (see `fitted`).
No constant was chosen on the made-up families of `regret_jobs`.

Of many jobs only those that come near a bound are replayed with all seeds. The published simulator (`zeus==0.16.0`,
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
from statistics import fmean

import numpy as np
from regret_jobs import (
    FAMILIES,
    RECORDED,
    RECURRENCES,
    TRACES,
    Case,
    every_default,
    made_up_jobs,
    recorded_cases,
)
from rich.console import Console
from rich.table import Table

from zeus_kfp.zeus_core import drift
from zeus_kfp.zeus_core.policies import policy_named
from zeus_kfp.zeus_core.policies.bayes import model
from zeus_kfp.zeus_core.simulation import (
    PLAIN,
    Change,
    ChangeKind,
    Scenario,
    default,
    oracle,
    recorded_truth,
    replay,
)

OURS, THEIRS = "bayes", "zeus"


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


@dataclass(frozen=True)
class Score:
    """A job's figures, as shares: both policies' regret, and ours above the default after all and ten recurrences."""

    name: str
    regret: float
    zeus_regret: float
    above_default: float
    early: float

    @classmethod
    def of(cls, case: Case, seeds: int) -> "Score":
        """Replay a job through both policies."""
        best = oracle(case.job, case.truth, RECURRENCES).cost
        plain = default(case.job, case.truth, RECURRENCES)
        ours, theirs = case.cost(OURS, seeds), case.cost(THEIRS, seeds)
        return cls(
            case.name,
            float(ours.sum() / best - 1),
            float(theirs.sum() / best - 1),
            float(ours.sum() / plain.cost - 1),
            float(ours[:10].sum() / sum(plain.recurrence_costs[:10]) - 1),
        )

    @property
    def above_zeus(self) -> float:
        """What ours costs above zeus, as a share of the oracle's cost."""
        return self.regret - self.zeus_regret

    @property
    def is_near_a_bound(self) -> bool:
        """Whether too few seeds may decide on which side of a bound it lies."""
        return self.above_default > 0.015 or self.early > 0.1 or self.above_zeus > -0.01


def scores(cases: Sequence[Case], seeds: int) -> list[Score]:
    """Return the scores of many jobs, with all seeds where it matters."""
    few = max(seeds // 5, 2)
    first = [(case, Score.of(case, min(few, seeds))) for case in cases]
    return [Score.of(case, seeds) if one.is_near_a_bound and seeds > few else one for case, one in first]


def group_checks(name: str, several: Sequence[Score], share: float, table: Table) -> Iterator[Check]:
    """Give the figures of a group of jobs, and write a row for it."""
    worst = [max(several, key=key) for key in (_above_zeus, _above_default, _early)]
    above_zeus, above_default, early = worst[0].above_zeus, worst[1].above_default, worst[2].early
    ratio = _ratio([(min(one.regret, 1.0), min(one.zeus_regret, 1.0)) for one in several])
    figures = [f"{ratio:.3f}", *(f"{share_:+.1%}" for share_ in (above_zeus, above_default, early))]
    table.add_row(f"{name} ({len(several)} jobs)", *figures, worst[2].name)
    yield Check(f"{name}: regret, share of zeus's", ratio, share)
    yield Check(f"{name}: worst above zeus (of oracle)", above_zeus, 0.01)
    yield Check(f"{name}: worst above default", above_default, 0.03)
    yield Check(f"{name}: worst above default, first 10", early, 0.15)


def _above_zeus(one: Score) -> float:
    return one.above_zeus


def _above_default(one: Score) -> float:
    return one.above_default


def _early(one: Score) -> float:
    return one.early


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the ratio of mean regrets; 0 where neither policy has any."""
    ours, theirs = zip(*pairs, strict=True)
    return fmean(ours) / fmean(theirs) if any(theirs) else math.inf if fmean(ours) > 1e-3 else 0.0


def job_checks(cases: Sequence[Case], seeds: int, jobs: Table, groups: Table) -> Iterator[Check]:
    """Give the figures of every group of jobs, and write a row for each of the paper's and for each group."""
    paper = [Score.of(case, seeds) for case in cases]
    for one in paper:
        shares = (one.regret, one.zeus_regret, one.above_default, one.early)
        jobs.add_row(one.name, *(f"{share:+.1%}" for share in shares))
    yield from group_checks("paper's jobs", paper, 0.4, groups)
    for eta in (0.0, 0.25, 0.75, 1.0):
        priced = [case.with_knobs(eta_knob=eta) for case in cases]
        yield from group_checks(f"eta {eta:g}", [Score.of(case, max(seeds // 2, 1)) for case in priced], 0.6, groups)
    for eta in (0.0, 0.25, 0.5, 0.75, 1.0):
        priced = [case.with_knobs(eta_knob=eta) for case in cases]
        name = f"every default, eta {eta:g}"
        yield from group_checks(name, scores(list(every_default(priced)), seeds), 0.8, groups)
    for family in FAMILIES:
        yield from group_checks(family, scores(list(made_up_jobs(family, 12)), seeds), 1.0, groups)


def left_out_check(cases: Sequence[Case], seeds: int) -> Check:
    """Give the regret where each data set's jobs meet priors that were estimated from the others."""
    usual = model.EPOCHS_PRIOR, model.EPOCH_COST_PRIOR
    pairs = []
    for family in {case.family for case in cases}:
        others = [case for case in cases if case.family != family]
        model.EPOCHS_PRIOR, model.EPOCH_COST_PRIOR = (fitted(others, curve) for curve in (log_epochs, log_epoch_cost))
        pairs += [(c.regret(OURS, seeds), c.regret(THEIRS, seeds)) for c in cases if c.family == family]
    model.EPOCHS_PRIOR, model.EPOCH_COST_PRIOR = usual
    return Check("data set left out of the constants, share of zeus's", _ratio(pairs), 0.5)


def fitted(cases: Sequence[Case], curve: Callable[[Case, int], float]) -> model.Prior:
    """Return the prior that the jobs' own curves suggest.

    A parabola is fitted to each curve within three octaves of the default. The slopes' and curvatures' means, and twice
    their sample deviations, make the prior: from so few data sets Student's t is about twice as wide as the normal
    distribution. What the parabolas leave makes the rough remainder.
    """
    slopes, bends, left = [], [], []
    for case in cases:
        octaves = {size: math.log2(size / case.job.default_batch_size) for size in case.reaching()}
        near = {size: u for size, u in octaves.items() if abs(u) <= 3}
        u, y = np.array(list(near.values())), np.array([curve(case, size) for size in near])
        design = np.stack([np.ones_like(u), u, u**2 / 2], axis=1)
        solved = np.linalg.lstsq(design, y, rcond=None)[0]
        slopes.append(solved[1])
        bends.append(solved[2])
        left.append(float(np.std(y - design @ solved)))
    return model.Prior(
        (float(np.mean(slopes)), 2 * max(float(np.std(slopes, ddof=1)), 0.1)),
        (float(np.mean(bends)), 2 * max(float(np.std(bends, ddof=1)), 0.05)),
        max(2 * float(np.mean(left)), 0.1),
        3.0,
    )


def log_epochs(case: Case, size: int) -> float:
    """Return ln of a size's mean epochs to the target."""
    return math.log(fmean(epochs for epochs in case.truth.sizes[size].epochs if epochs <= case.job.max_epochs))


def log_epoch_cost(case: Case, size: int) -> float:
    """Return ln of a size's epoch cost in J."""
    return math.log(case.truth.priced(case.job.eta_knob)[size].epoch_cost)


def other_checks(cases: Sequence[Case], seeds: int) -> Iterator[Check]:
    fewer = max(seeds // 4, 1)
    yield left_out_check(cases, fewer)
    long = [2 * len(c.truth.sizes) * len(next(iter(c.truth.sizes.values())).power) for c in cases]
    pairs = [(c.regret(OURS, fewer, n), c.regret(THEIRS, fewer, n)) for c, n in zip(cases, long, strict=True)]
    yield Check("regret after 2|B||P|, share of zeus's", _ratio(pairs), 1.0)
    yield from overlap_checks(cases, seeds)


def overlap_checks(cases: Sequence[Case], seeds: int) -> Iterator[Check]:
    """Give the figures of three recurrences at once, and what their slow start costs in time."""
    slow, blind = Scenario(overlap=3), Scenario(overlap=3, slow_start=False)
    alone, together = _mean_regret(cases, OURS, seeds), _mean_regret(cases, OURS, seeds, slow)
    yield Check("three at once, share of zeus's", together / _mean_regret(cases, THEIRS, seeds, slow), 0.8)
    yield Check("three at once, times one at a time", together / alone, 1.3)
    yield Check("  without the slow start", _mean_regret(cases, OURS, seeds, blind) / alone, 2.0)
    ends = [c.end_s(OURS, seeds, slow) / c.end_s(OURS, seeds, blind) for c in cases]
    yield Check("  time to the end, times that without", fmean(ends), 1.2)


def _mean_regret(cases: Sequence[Case], policy: str, seeds: int, scenario: Scenario = PLAIN) -> float:
    return fmean(case.regret(policy, seeds, scenario=scenario) for case in cases)


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
    parser.add_argument("--seeds", type=int, default=20, help="seeds for the paper's jobs and for those near a bound")
    seeds = parser.parse_args().seeds
    if not (TRACES / "summary_train.csv").is_file():
        print("skipped: ZEUS_KFP_SHARED_DATA names no folder with zeus-traces/summary_train.csv")
        return
    console, cases = Console(width=110), recorded_cases()
    jobs = Table(title=f"{RECURRENCES} recurrences, {seeds} seeds: regret, and cost above the default batch size")
    for heading in ("job", OURS, THEIRS, f"{OURS} above default", "first 10"):
        jobs.add_column(heading, justify="left" if heading == "job" else "right")
    groups = Table(title=f"every group: regret as a share of {THEIRS}'s, and the worst job's cost above …")
    for heading in ("group", "regret", THEIRS, "default", "default, first 10", "where"):
        groups.add_column(heading, justify="left" if heading in ("group", "where") else "right")
    checks = [
        *job_checks(cases, seeds, jobs, groups),
        *other_checks(cases, seeds),
        *change_checks(cases, max(seeds // 4, 1)),
        *speed_checks(cases),
    ]
    console.print(jobs)
    console.print(groups)
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
