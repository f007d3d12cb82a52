"""The suggestions equal those of the published in-process policy, fed with the same costs from the same seed.

The published policy is `zeus==0.16.0`, installed for tests only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learnt import Learnt, Observation, observe
from zeus_kfp.zeus_core.policies import InFlight, policy_named
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialState

published = pytest.importorskip("zeus._legacy.policy.optimizer", reason="zeus==0.16.0 is not installed")
published_job = pytest.importorskip("zeus._legacy.job", reason="zeus==0.16.0 is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero"),
    pytest.mark.filterwarnings("ignore:predict_expectations called when arm"),
]

SEEDS = range(20)
# Target, max_epochs and default batch size of the paper's jobs.
PAPER_JOBS = {
    "cifar100": (0.6, 100, 1024),
    "librispeech": (40.0, 16, 192),
    "movielens-1m": (0.41, 100, 1024),
    "sentiment140": (0.84, 10, 128),
}
# The same jobs with targets that few batch sizes reach, and other defaults.
HARD_JOBS = {
    "cifar100": (0.65, 100, 64),
    "librispeech": (35.0, 15, 32),
    "movielens-1m": (0.42, 20, 256),
    "sentiment140": (0.845, 10, 8),
}
ETA_KNOB = 0.5

Run = Callable[[int, float, bool], tuple[float, bool]]
"""Of (batch size, cost threshold in J, whether it is the first of that size) to (cost in J, reached)."""


@dataclass
class Both:
    """Ours and the published policy side by side, fed with the same costs."""

    job: JobSpec
    theirs: object
    rng: np.random.Generator = field(init=False)
    learnt: Learnt = field(default_factory=Learnt)
    tried: set[int] = field(default_factory=set)
    dead: bool = False
    """Whether a round of the walk ended with nothing, where the published policy can't go on."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.job.seed)
        self.key = published_job.Job(
            self.job.job_id, "n", "o", self.job.target_metric, self.job.max_epochs, self.job.default_batch_size
        )
        self.theirs.register_job(self.key, list(self.job.batch_sizes))

    def suggest(self, in_flight: tuple[InFlight, ...] = ()) -> Suggestion:
        """Ask both; where ours answers for a concurrent trial, the published policy is not to be asked."""
        ours = policy_named("zeus").suggest(self.job, self.learnt, in_flight, self.rng)
        if ours.purpose is not Purpose.CONCURRENT:
            try:
                theirs = self.theirs.predict(self.key)
            except ValueError:
                self.dead = True
                assert self.theirs.exp_manager[self.key].batch_sizes == []
            else:
                assert ours.batch_size == theirs
        return ours

    def run(self, run: Run, suggestion: Suggestion) -> tuple[float, bool]:
        first = suggestion.batch_size not in self.tried
        self.tried.add(suggestion.batch_size)
        threshold = math.inf if suggestion.cost_threshold is None else suggestion.cost_threshold
        return run(suggestion.batch_size, threshold, first)

    def tell(self, suggestion: Suggestion, cost: float, reached: bool, spent: float) -> None:
        self.theirs.observe(self.key, suggestion.batch_size, cost, reached)
        state = TrialState.REACHED if reached else TrialState.NOT_REACHED
        seen = Observation(suggestion.batch_size, suggestion.purpose, state, cost, spent)
        self.learnt = observe(self.job, self.learnt, seen)


def drive_in_turn(both: Both, run: Run, num_trials: int) -> int:
    """Run recurrences one after another; return how many suggestions were equal."""
    spent = 0.0
    for count in range(num_trials):
        suggestion = both.suggest()
        if both.dead:
            return count
        cost, reached = both.run(run, suggestion)
        spent += cost
        both.tell(suggestion, cost, reached, spent)
        spent = 0.0 if reached else spent
    return num_trials


def drive_overlapping(both: Both, run: Run, num_trials: int, order: np.random.Generator) -> int:
    """Run up to four recurrences at a time, finishing in random order."""
    flying: list[tuple[Suggestion, float, bool]] = []
    best = (math.inf, both.job.default_batch_size)
    started = 0
    while started < num_trials:
        if len(flying) < order.integers(1, 5):
            in_flight = tuple(InFlight(s.batch_size, s.purpose) for s, _, _ in flying)
            suggestion = both.suggest(in_flight)
            if both.dead:
                break
            if suggestion.purpose is Purpose.CONCURRENT:
                assert suggestion.batch_size == best[1]
            flying.append((suggestion, *both.run(run, suggestion)))
            started += 1
            continue
        # The published policy takes any result of the size it waits for as the walk's: those wait their turn.
        waited_for = {s.batch_size for s, _, _ in flying if s.purpose is Purpose.EXPLORATION}
        ready = [
            i
            for i, (s, _, _) in enumerate(flying)
            if s.purpose is not Purpose.CONCURRENT or s.batch_size not in waited_for
        ]
        suggestion, cost, reached = flying.pop(int(order.choice(ready)))
        both.tell(suggestion, cost, reached, cost)
        if reached:
            best = min(best, (cost, suggestion.batch_size), key=lambda pair: pair[0])
    return started


def spec(seed: int, sizes: tuple[int, ...], default: int, **knobs: float) -> JobSpec:
    return JobSpec("job", sizes, default, target_metric=0.5, seed=seed, **knobs)


def published_pruning(job: JobSpec, **flags: bool) -> object:
    return published.PruningGTSBatchSizeOptimizer(
        job.prior_mean, job.prior_precision, job.window_size, seed=job.seed, verbose=False, **flags
    )


class TraceJob:
    """A recorded job: which batch sizes there are, and what a trial at one costs."""

    def __init__(self, files: tuple[Path, Path], dataset: str, target: float, max_epochs: int, is_hard: bool) -> None:
        self.is_hard = is_hard
        pandas = pytest.importorskip("pandas")
        train, power = (pandas.read_csv(file) for file in files)
        frame = train[(train.dataset == dataset) & (train.target_metric == target)].merge(power)
        max_power = power.power_limit.max()
        epoch_cost = (ETA_KNOB * frame.average_power + (1 - ETA_KNOB) * max_power) * frame.time_per_epoch
        frame = frame.assign(epoch_cost=epoch_cost)
        self.max_epochs = max_epochs
        self.costs, self.first_costs, self.epochs = {}, {}, {}
        for size, rows in frame.groupby("batch_size"):
            by_limit = rows.groupby("power_limit").epoch_cost.mean()
            self.costs[int(size)] = float(by_limit.min())
            self.first_costs[int(size)] = float(by_limit.mean())
            self.epochs[int(size)] = rows.drop_duplicates("run").target_epoch.tolist()
        self.sizes = tuple(sorted(self.costs))

    def runner(self, seed: int) -> Run:
        rng = np.random.default_rng(seed)

        def run(size: int, threshold: float, first: bool) -> tuple[float, bool]:
            needed = self.epochs[size][rng.integers(len(self.epochs[size]))]
            allowed = min(math.floor(min(threshold / self.costs[size], 1e9)), self.max_epochs)
            if allowed == 0:
                return 100 * threshold, False
            reached = needed <= allowed
            cost = self.costs[size] * ((needed if reached else allowed) - first)
            return cost + first * self.first_costs[size], bool(reached)

        return run


@pytest.fixture(params=[(gpu, data) for gpu in ("v100", "a40") for data in PAPER_JOBS], ids="-".join)
def recorded(
    request: pytest.FixtureRequest, trace_files: Callable[[str], tuple[Path, Path]]
) -> list[tuple[TraceJob, int]]:
    gpu, dataset = request.param
    files = trace_files(gpu)
    jobs = ((PAPER_JOBS[dataset], False), (HARD_JOBS[dataset], True))
    return [(TraceJob(files, dataset, target, epochs, hard), default) for (target, epochs, default), hard in jobs]


@pytest.mark.parametrize(
    ("knobs", "num_trials"), [({}, 150), ({"window_size": 4}, 100), ({"beta_knob": math.inf}, 70)], ids=str
)
def test_recorded_jobs_get_the_published_suggestions(recorded, knobs, num_trials) -> None:
    for trace, default in recorded:
        for seed in SEEDS:
            job = spec(seed, trace.sizes, default, **knobs)
            equal = drive_in_turn(Both(job, published_pruning(job)), trace.runner(seed), num_trials)
            assert equal == num_trials or trace.is_hard


@pytest.mark.parametrize("knobs", [{}, {"window_size": 3}], ids=str)
def test_overlapping_recurrences_get_the_published_suggestions(recorded, knobs) -> None:
    for trace, default in recorded:
        for seed in SEEDS:
            job = spec(seed, trace.sizes, default, **knobs)
            both = Both(job, published_pruning(job, concurrency=True))
            started = drive_overlapping(both, trace.runner(seed), 70, np.random.default_rng(seed))
            assert started == 70 or trace.is_hard


SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=12, unique=True).map(sorted)


def synthetic_runner(seed: int, sizes: list[int], noise: float, failing: float) -> Run:
    """A job whose cost is convex in log(size), with sizes that fail sometimes, always or never."""
    rng = np.random.default_rng(seed)
    best, steepness = rng.choice(np.log(sizes)), rng.uniform(0, 1)
    chances = {size: 1 - failing * float(rng.random() ** 3) for size in sizes}

    def run(size: int, threshold: float, first: bool) -> tuple[float, bool]:
        cost = 1e5 * math.exp(steepness * (math.log(size) - best) ** 2) * math.exp(noise * rng.normal())
        reached = bool(rng.random() < chances[size])
        # Stopped somewhere before the threshold: of equal costs the two differ on purpose (zero variance).
        return (cost, reached) if cost <= threshold else (threshold * rng.uniform(0.8, 1.0), False)

    return run


@given(
    sizes=SIZES,
    default=st.integers(0, 11),
    seed=st.integers(0, 2**32),
    noise=st.sampled_from([0.001, 0.05, 0.5]),
    failing=st.sampled_from([0.0, 0.3, 1.0]),
    window=st.sampled_from([0, 2, 5]),
    beta=st.sampled_from([1.2, 2.0, math.inf]),
    precision=st.sampled_from([0.0, 1e-9]),
    overlapping=st.booleans(),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_jobs_that_nobody_recorded_get_the_published_suggestions(
    sizes, default, seed, noise, failing, window, beta, precision, overlapping
) -> None:
    knobs = {"window_size": window, "beta_knob": beta, "prior_precision": precision, "prior_mean": -1e5}
    job = spec(seed, tuple(sizes), sizes[default % len(sizes)], **knobs)
    both = Both(job, published_pruning(job, concurrency=overlapping))
    run = synthetic_runner(seed, sizes, noise, failing)
    if overlapping:
        drive_overlapping(both, run, 60, np.random.default_rng(seed))
    else:
        drive_in_turn(both, run, 60)


@given(sizes=SIZES, seed=st.integers(0, 2**32), explorations=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_without_a_walk_it_is_the_published_sampling_policy(sizes, seed, explorations) -> None:
    job = spec(seed, tuple(sizes), sizes[0], num_pruning_rounds=0, num_explorations=explorations)
    theirs = published.GTSBatchSizeOptimizer(
        learn_reward_precision=True, num_exploration=explorations, seed=seed, verbose=False
    )
    assert drive_in_turn(Both(job, theirs), synthetic_runner(seed, sizes, 0.1, 0.3), 80) == 80
