"""A year of ticks of ten minutes, with a clock that the test moves.

Where nothing can happen, far from the next due moment and from any event, ticks are thinned to one in six hours.
"""

import dataclasses
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec, TrialState

WEEK, TICK, SLACK = timedelta(days=7), timedelta(minutes=10), timedelta(minutes=5)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, period_s=WEEK.total_seconds(), max_trial_time_s=36_000.0)
REACHED = dataclasses.replace(NOT_REACHED, state=TrialState.REACHED, metric=0.95)
LEASE = timedelta(seconds=SPEC.max_trial_time_s) + timedelta(minutes=10)
STEP_LEASE = timedelta(seconds=SPEC.max_step_time_s) + timedelta(minutes=10)


class World:
    """A job whose runs tick, with the true time and what the store's clock shows."""

    def __init__(self, url, spec, zone=UTC):
        self.spec, self.zone, self.now, self.off = spec, zone, BEGIN, timedelta(0)
        self.store = StateStore(url, clock=lambda: (self.now + self.off).astimezone(self.zone))
        self.starts, self.ticks, self.due, self.dead = [], 0, [], {}

    def tick(self):
        """Let a run begin; return the number of the recurrence that it opened, 0 for none."""
        self.ticks += 1
        opened = self.store.open_recurrence(self.spec, f"run-{self.ticks}")
        if opened.granted:
            self.starts.append(self.now)
        return opened.number

    def train_until(self, end):
        """Suggest now, and report and close at the end."""
        run = f"run-{self.ticks}"
        self.store.suggest("job", run, 1)
        self.due.append((end, run))

    def pass_to(self, moment):
        for end, run in sorted(self.due):
            if end <= moment:
                self.now = end
                self.store.report("job", run, 1, REACHED)
                self.store.close_recurrence("job", run)
                self.due.remove((end, run))
        self.now = moment

    def die(self):
        """Let the recurrence that began now die before it trains, and keep when it is made up for.

        That is as soon as its death is certain; of several in a row, after as long again as they took.
        """
        vain = list(takewhile(self.dead.__contains__, reversed(self.starts[:-1])))
        tried = self.now - vain[-1] if vain else timedelta(0)
        self.dead[self.now] = self.now + max(STEP_LEASE, min(tried, WEEK))

    def step(self, events=()):
        """Return the next tick's moment: in ten minutes near an event or a due moment, else in six hours."""
        ends = [*(end for end, _ in self.due), *list(self.dead.values())[-1:]]
        watched = [*events, *(start + WEEK for start in self.starts[-1:]), *ends]
        far = all(not -timedelta(hours=1) < self.now - w < timedelta(hours=1) for w in watched)
        ahead = [w - self.now - timedelta(hours=1) for w in watched if w > self.now]
        return self.now + (max(TICK, min([timedelta(hours=6), *ahead]) // TICK * TICK) if far else TICK)


def year_of(url, zone):
    world = World(url, SPEC, zone)
    while world.now < BEGIN + timedelta(days=365):
        if world.tick():
            world.train_until(world.now + timedelta(hours=5))
        world.pass_to(world.step())
    return world


def test_a_quiet_year_starts_each_week_to_the_tick_whatever_summer_time_does(tmp_path):
    world = year_of(f"sqlite:///{tmp_path / 'store.db'}", ZoneInfo("Europe/Berlin"))
    assert world.starts == [BEGIN + n * WEEK for n in range(53)]
    assert {r.state for r in world.store.recurrences("job")} == {RecurrenceState.REACHED}
    assert [r.opened_at for r in world.store.recurrences("job")] == world.starts


def jumps(day):
    """Return by how much the store's clock is off on a day of the year: twice back, twice ahead."""
    spans = {(40, 43): -3.0, (100, 100.1): -400.0, (150, 151): 2.0, (230, 230.2): 90.0}
    return timedelta(days=next((off for (begin, end), off in spans.items() if begin <= day < end), 0.0))


CHANGES = [BEGIN + timedelta(days=day) for day in (40, 43, 100, 100.1, 150, 151, 230, 230.2)]
DRIFTS = [BEGIN + timedelta(days=day) for day in (18, 60, 61, 200, 300)]


def test_a_rough_year_never_exceeds_the_cap_starts_too_early_or_loses_a_slot(tmp_path):
    spec = dataclasses.replace(SPEC, max_concurrent_recurrences=2)
    world, fates, drifts = World(f"sqlite:///{tmp_path / 'store.db'}", spec), random.Random(3), list(DRIFTS)
    tally = {"dead": 0, "slow": 0, "usual": 0}
    while world.now < BEGIN + timedelta(days=365):
        world.off = jumps((world.now - BEGIN) / timedelta(days=1))
        if drifts and world.now >= drifts[0]:
            world.store.signal_drift("job", f"drift of {drifts.pop(0):%Y-%m-%d}")
        if world.tick():
            (fate,) = fates.choices(list(tally), [0.25, 0.25, 0.5])
            tally[fate] += 1
            if fate == "dead":
                world.die()
            else:
                # The slow ones overlap with what drift starts, but stay below their lease.
                world.train_until(world.now + timedelta(hours=9 if fate == "slow" else 2))
            opened = world.store.recurrences("job", state=RecurrenceState.OPEN)
            assert len(opened) <= 2
        world.pass_to(world.step([*DRIFTS, *CHANGES]))
    assert min(tally.values()) >= 5
    check_spacing(world)
    consumed = [d.recurrence_number for d in world.store.drifts("job") if d.reason.startswith("drift")]
    assert None not in consumed and len(set(consumed)) == len(DRIFTS)
    check_no_slot_is_lost(world)


def check_spacing(world):
    """No start comes early but for drift, a clock that jumped or one before it that died untrained, and none late."""
    excused = [*DRIFTS, *CHANGES]
    for before, after in pairwise(world.starts):
        disturbed = [moment for moment in excused if before < moment <= after]
        due = world.dead.get(before, before + WEEK)
        assert after >= due - SLACK or disturbed
        # A clock that went back begins a new period; one that goes ahead ends it.
        assert after <= due + TICK + (WEEK if disturbed else timedelta(0))
    assert len(world.starts) - len(world.dead) >= 52 + len(DRIFTS) - len(CHANGES)


def check_no_slot_is_lost(world):
    world.off = timedelta(0)
    world.pass_to(world.now + LEASE + 2 * WEEK)
    for number in range(2):
        world.store.signal_drift("job", f"end {number}")
        assert world.tick()
    world.store.signal_drift("job", "one too many")
    assert not world.tick()
