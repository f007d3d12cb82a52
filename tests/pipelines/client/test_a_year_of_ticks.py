"""A year of a schedule that ticks four times a day, under KFP's rules, with a job of a weekly period behind it.

The schedule is changed, paused and resumed through the client; recurrences overlap and die; drift is signalled; the
clock that the pods go by jumps, and shows the time of a place with summer time. A model of a page says what is opened.
"""

import dataclasses
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from fake_kfp import Books, Controller, FakeKfp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zeus_kfp.pipelines.client import RecurringTrainingClient
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState

HOUR = timedelta(hours=1)
TICK_H, CAP, TRIAL_H = 6, 2, 47
LEASE = TRIAL_H * HOUR + timedelta(minutes=10)
PERIOD = timedelta(days=7)
SPEC = JobSpec(
    "job", (16,), 16, target_metric=0.9, period_s=PERIOD.total_seconds(), max_concurrent_recurrences=CAP,
    max_trial_time_s=TRIAL_H * 3600.0,
)  # fmt: skip
REACHED = TrialOutcome(TrialState.REACHED, epochs=1, metric=0.95, energy_j=1.0, time_s=1.0, max_power_w=1.0)
KNOBS = {"job_id": "job", "train_entry_point": "m:f", "batch_sizes": [16], "default_batch_size": 16}
KNOBS |= {"target_metric": 0.9}
BERLIN = ZoneInfo("Europe/Berlin")


@dataclasses.dataclass(frozen=True)
class Script:
    """What happens in which hour after the schedule was made.

    ``lives`` are the hours of the recurrences, over and over, None for one that dies; ``jumps`` are hours of the clock.
    """

    hours: int
    lives: tuple[int | None, ...]
    changes: dict[int, str]
    drifts: frozenset[int]
    jumps: dict[int, int]


class Model:
    """What the job should do, on a page of arithmetic; a moment is what the pods' clock shows."""

    def __init__(self, lives):
        self.lives = lives
        self.opened, self.running, self.ending = [], [], []
        self.drifted, self.began, self.back_at = False, None, None

    def note_clock(self, now):
        if all(began is None or began <= now for began in (self.began, *(run["began"] for run in self.running))):
            self.back_at = None
        elif self.back_at is None or self.back_at > now:
            self.back_at = now

    def is_alive(self, run, now):
        lease = run["began"] + LEASE
        return (min(lease, (self.back_at or now) + LEASE) if run["began"] > now else lease) > now

    def is_due(self, now):
        since = self.began if self.began is None or self.began <= now else self.back_at or now
        return since is None or self.drifted or now >= since + PERIOD - timedelta(minutes=5)

    def end(self, now, hour):
        for run in [run for run in self.ending if run["ends"] == hour]:
            if self.back_at is not None:
                self.note_clock(now)
            self.running = [other for other in self.running if other is not run]

    def tick(self, now, hour):
        self.note_clock(now)
        self.running = [run for run in self.running if self.is_alive(run, now)]
        if self.is_due(now) and len(self.running) < CAP:
            self.opened.append((now, self.drifted))
            self.began, self.drifted = now, False
            hours = self.lives[(len(self.opened) - 1) % len(self.lives)]
            self.running.append({"ends": hours and hour + hours, "began": now})
            self.ending.append(self.running[-1])


def expected(script, made_at):
    """Return the openings that the model has, and whether drift started each."""
    model, paused, offset = Model(script.lives), False, timedelta(0)
    for hour in range(1, script.hours + 1):
        now = made_at + hour * HOUR + offset
        model.end(now, hour)
        if hour % TICK_H == 0 and not paused:
            model.tick(now, hour)
        paused = {"pause": True, "resume": False}.get(script.changes.get(hour), paused)
        model.drifted |= hour in script.drifts and bool(model.opened)
        offset += script.jumps.get(hour, 0) * HOUR
    return model.opened


class Cluster:
    """The real client and store, with KFP's controller between them."""

    def __init__(self, script, clock, server, url):
        self.script, self.clock, self.server, self.made_at = script, clock, server, clock.now
        self.offset = timedelta(0)
        self.store = StateStore(url, clock=lambda: (clock.now + self.offset).astimezone(BERLIN))
        self.controller = Controller(server.books)
        self.client = RecurringTrainingClient(
            host=server.url, clock=clock, monotonic=clock.monotonic, sleep=clock.sleep
        )
        self.running = {}
        self.changes = 0

    def run(self):
        self.client.create_or_update_schedule(
            "s", "recurring_training", every=f"{TICK_H}h", parameters=KNOBS, max_concurrency=10
        )
        for hour in range(1, self.script.hours + 1):
            self.clock.now = self.made_at + hour * HOUR
            for run_id in [run_id for run_id, ends in self.running.items() if ends == hour]:
                self.end(run_id)
            for run in self.controller.look():
                self.start(run["run_id"], hour)
            self.go_on(hour)
        found = self.store.recurrences("job") if self.store.jobs() else ()
        return [(r.opened_at, "Drift was signalled" in r.why) for r in found]

    def start(self, run_id, hour):
        opened = self.store.open_recurrence(SPEC, run_id)
        if not opened.granted:
            self.server.books.set_state(run_id, "SUCCEEDED")
            return
        self.store.suggest("job", run_id, 1)
        hours = self.script.lives[(opened.number - 1) % len(self.script.lives)]
        if hours is None:
            self.server.books.set_state(run_id, "FAILED")
        else:
            self.running[run_id] = hour + hours

    def end(self, run_id):
        del self.running[run_id]
        self.store.report("job", run_id, 1, REACHED)
        self.store.close_recurrence("job", run_id)
        self.server.books.set_state(run_id, "SUCCEEDED")

    def go_on(self, hour):
        change = self.script.changes.get(hour)
        if change == "update":
            self.changes += 1
            self.client.update_schedule("s", parameters={"max_epochs": self.changes})
        elif change:
            getattr(self.client, change)("s")
        if hour in self.script.drifts and self.store.jobs():
            self.store.signal_drift("job", f"in hour {hour}")
        self.offset += self.script.jumps.get(hour, 0) * HOUR


def check(script, clock, description, url):
    with FakeKfp(Books(clock), description) as server:
        cluster = Cluster(script, clock, server, url)
        with cluster.store:
            found = cluster.run()
        assert found == expected(script, cluster.made_at)
        assert (server.errors, server.books.killed) == ([], [])
        assert len([r for r in server.books.recurring_runs.values() if r["status"] == "ENABLED"]) <= 1
    return found


def a_year(seed):
    luck = random.Random(seed)
    year_h = 365 * 24
    changes = {h: "update" for h in luck.sample(range(year_h), 20)} | {4000: "pause", 4400: "resume"}
    lives = tuple(None if luck.random() < 0.1 else luck.randint(1, 40) for _ in range(80))
    jumps = {1500: 5, 1700: -5, 3000: -30, 6000: 200, 6100: -200}
    return Script(year_h, lives, changes, frozenset(luck.sample(range(year_h), 15)), jumps)


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_a_year_opens_exactly_what_the_model_says(description, clock, sqlite_url):
    clock.now = datetime(2026, 1, 1, tzinfo=UTC)
    found = check(a_year(1), clock, description, sqlite_url)
    assert (len(found), sum(drifted for _, drifted in found)) == (59, 15)


HOURS = 30 * 24
hours = st.integers(0, HOURS)
scripts = st.builds(
    Script,
    st.just(HOURS),
    st.lists(st.none() | st.integers(1, 100), min_size=1, max_size=6).map(tuple),
    st.dictionaries(hours, st.sampled_from(["update", "pause", "resume"]), max_size=6),
    st.frozensets(hours, max_size=6),
    st.dictionaries(hours, st.integers(-200, 200), max_size=3),
)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_any_weeks_open_exactly_what_the_model_says(script, description, tmp_path_factory, clock):
    clock.now = datetime(2026, 3, 1, tzinfo=UTC)
    check(script, clock, description, f"sqlite:///{tmp_path_factory.mktemp('store') / 'store.db'}")
