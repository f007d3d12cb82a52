"""Whatever happens, in whatever order: the books stay right."""

import dataclasses
import uuid

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.state_store.driving import NOT_REACHED
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec, Purpose, TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import (
    ConflictingReportError,
    InvalidValueError,
    JobChangedError,
    JobInUseError,
    NoBatchSizeLeftError,
    UnknownJobError,
    UnknownRecurrenceError,
    UnknownTrialError,
    ZeusError,
)

SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, max_retries=3, max_concurrent_recurrences=2)
REFUSALS = (
    ConflictingReportError,
    JobChangedError,
    JobInUseError,
    NoBatchSizeLeftError,
    UnknownJobError,
    UnknownRecurrenceError,
    UnknownTrialError,
)
RUNS = st.sampled_from(["a", "b", "c", "d"])
SLOTS = st.integers(1, 4)
COSTS = st.floats(1e-6, 1e12)
OUTCOMES = st.one_of(
    st.builds(
        lambda state, energy_j, time_s: dataclasses.replace(NOT_REACHED, state=state, energy_j=energy_j, time_s=time_s),
        st.sampled_from([TrialState.REACHED, TrialState.NOT_REACHED]),
        COSTS,
        st.floats(1e-6, 1e8),
    ),
    st.builds(
        lambda way, accelerator: dataclasses.replace(
            NOT_REACHED,
            state=TrialState.REACHED,
            epochs=way[-1],
            curve=tuple((epochs, epochs / 7) for epochs in way),
            accelerator=accelerator,
        ),
        st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=16, unique=True).map(sorted),
        st.sampled_from(["V100", "A40", ""]),
    ),
    st.builds(
        lambda epochs, factor: dataclasses.replace(NOT_REACHED, epochs=epochs, least_epochs=epochs * factor),
        st.integers(1, 10**6),
        st.floats(1.1, 100.0),
    ),
    st.builds(
        lambda state, accelerator: TrialOutcome(state, accelerator=accelerator),
        st.sampled_from([TrialState.OOM, TrialState.FAILED]),
        st.sampled_from(["V100", "A40", ""]),
    ),
    st.just(TrialOutcome(TrialState.FAILED, data_missing=True)),
)
CHANGES = st.sampled_from(
    [
        {},
        {"eta_knob": 0.9},
        {"period_s": 86_400.0},
        {"preprocess_every": 2},
        {"target_metric": 0.8},
        {"window_size": 2},
        {"seed": 5},
        {"batch_sizes": (8, 16)},
        {"policy": "zeus"},
        {"hopeless_stop": False},
        {"learning_rate_rule": "linear"},
    ]
)


class Histories(RuleBasedStateMachine):
    """Operations of four runs of a job, in any order, with a clock that jumps."""

    url = ""
    clock = None
    finished = 0

    def __init__(self):
        super().__init__()
        self.job_id = uuid.uuid4().hex
        self.spec = dataclasses.replace(SPEC, job_id=self.job_id)
        self.store = StateStore(self.url, clock=self.clock)

    def teardown(self):
        self.store.close()

    def attempt(self, operation):
        try:
            return operation()
        except REFUSALS:
            return None

    @initialize()
    def begin(self):
        self.store.open_recurrence(self.spec, "a")
        self.store.open_recurrence(self.spec, "b")

    @rule(data=st.data())
    def go_on(self, data):
        open_ones = self.recurrences(RecurrenceState.OPEN)
        if open_ones:
            recurrence = data.draw(st.sampled_from(open_ones))
            self.suggest(recurrence.run_id, recurrence.trial_count + 1)
        else:
            self.attempt(lambda: self.store.open_recurrence(self.spec, uuid.uuid4().hex, on_knob_change="accept"))

    @rule(data=st.data(), outcome=OUTCOMES)
    def run_a_trial(self, data, outcome):
        self.go_on(data)
        self.finish(data, outcome)

    @rule(data=st.data(), outcomes=st.lists(OUTCOMES, min_size=2, max_size=3))
    def run_a_recurrence(self, data, outcomes):
        for outcome in outcomes:
            self.run_a_trial(data, outcome)

    @rule(data=st.data(), outcome=OUTCOMES)
    def finish(self, data, outcome):
        issued = self.attempt(lambda: self.store.trials(self.job_id, state=TrialState.ISSUED))
        if issued:
            trial = data.draw(st.sampled_from(issued))
            self.report(trial.run_id, trial.slot, outcome)

    def recurrences(self, state):
        return self.attempt(lambda: self.store.recurrences(self.job_id, state=state)) or ()

    @rule(
        operation=st.sampled_from(
            [
                lambda store, job: (store.complete_job(job), store.reopen_job(job)),
                lambda store, job: (store.delete_job(job), store.reopen_job(job)),
                lambda store, job: store.delete_job(job, keep_history=False),
                lambda store, job: store.reset_job(job),
                lambda store, job: store.reset_job(job, keep_history=False),
            ]
        )
    )
    def manage(self, operation):
        self.attempt(lambda: operation(self.store, self.job_id))

    @rule(run=RUNS, change=CHANGES, accept=st.booleans())
    def open(self, run, change, accept):
        spec, consent = dataclasses.replace(self.spec, **change), "accept" if accept else "refuse"
        self.attempt(lambda: self.store.open_recurrence(spec, run, on_knob_change=consent))

    @rule(run=RUNS, slot=SLOTS)
    def suggest(self, run, slot):
        first = self.attempt(lambda: self.store.suggest(self.job_id, run, slot))
        if first is not None:
            assert self.store.suggest(self.job_id, run, slot) == first

    @rule(run=RUNS, slot=SLOTS, outcome=OUTCOMES)
    def report(self, run, slot, outcome):
        first = self.attempt(lambda: self.store.report(self.job_id, run, slot, outcome))
        if first is not None:
            type(self).finished += 1
            assert self.store.report(self.job_id, run, slot, outcome) == first

    @rule(run=RUNS)
    def close(self, run):
        self.attempt(lambda: self.store.close_recurrence(self.job_id, run))

    @rule(reason=st.sampled_from(["accuracy fell", "schema changed"]))
    def drift(self, reason):
        first = self.attempt(lambda: self.store.signal_drift(self.job_id, reason))
        if first is not None:
            assert self.store.signal_drift(self.job_id, reason) == first

    @rule(run=RUNS, every=st.sampled_from([0, 1, 2]))
    def stage(self, run, every):
        first = self.attempt(lambda: self.store.take_stage_turn(self.job_id, run, f"every {every}", every))
        if first is not None:
            assert self.store.take_stage_turn(self.job_id, run, f"every {every}", every) == first

    @rule(days=st.sampled_from([0.0, 0.5, 2.0, -1.0]))
    def wait(self, days):
        self.clock.move(days=days)

    @invariant()
    def the_books_are_right(self):
        try:
            job = self.store.job(self.job_id)
        except UnknownJobError:
            return
        trials, recurrences = self.store.trials(self.job_id), self.store.recurrences(self.job_id)
        assert self.store.learnt(self.job_id) == self.store.learnt_from_rows(self.job_id)
        assert [t.number for t in trials] == list(range(1, job.trial_count + 1))
        assert [r.number for r in recurrences] == list(range(1, job.recurrence_count + 1))
        assert sum(r.state is RecurrenceState.OPEN for r in recurrences) <= SPEC.max_concurrent_recurrences
        waiting = [d.reason for d in self.store.drifts(self.job_id) if d.recurrence_number is None]
        assert len(set(waiting)) == len(waiting), "the same drift waits twice"
        issued = [t for t in trials if t.state is TrialState.ISSUED]
        assert len({t.run_id for t in issued}) == len(issued), "a recurrence has two trials under way"
        assert all(r.state is not RecurrenceState.NOT_REACHED or r.batch_size is None for r in recurrences)


def test_what_is_kept_is_what_the_trials_alone_rebuild_after_any_history(store_url, clock):
    machine = type("Machine", (Histories,), {"url": store_url, "clock": clock})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            phases=[Phase.explicit, Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
    # Fifty to a hundred and twenty, as the histories fall out.
    assert machine.finished > 20, "hardly any trial ever reported"


@given(name=st.text(max_size=300) | st.sampled_from(["x" * 10_000, "'; DROP TABLE job;--", "%s %(job_id)s", "🚀\0"]))
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_name_is_kept_verbatim_or_refused_whole(store, name):
    try:
        spec = dataclasses.replace(SPEC, job_id=name, user=name)
    except InvalidValueError:
        with pytest.raises(ZeusError):
            store.suggest(name, "run", 1)
        return
    store.open_recurrence(spec, name)
    assert store.suggest(name, name, 1).job_id == name
    assert [o.job.spec.user for o in store.jobs(user=name)] == [name]
    assert store.close_recurrence(name, name).run_id == name


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), 1e308, "1", None, True])
@pytest.mark.parametrize("name", ["energy_j", "time_s"])
def test_a_number_that_is_no_measurement_never_reaches_a_job(store, name, value):
    store.open_recurrence(SPEC, "run")
    store.suggest("job", "run", 1)
    with pytest.raises(InvalidValueError):
        outcome = dataclasses.replace(NOT_REACHED, **{name: value})
        store.report("job", "run", 1, outcome)
    assert store.trials("job")[0].state is TrialState.ISSUED
    store.report("job", "run", 1, NOT_REACHED)
    assert store.learnt("job").arm(16).count == 1


@pytest.mark.parametrize("sizes", [(16,), (8, 16)])
def test_equal_costs_and_a_single_size_never_stop_a_job(store, sizes):
    spec = dataclasses.replace(SPEC, batch_sizes=sizes, default_batch_size=16)
    seen = set()
    for number in range(30):
        store.open_recurrence(spec, f"run-{number}")
        seen.add(store.suggest("job", f"run-{number}", 1).batch_size)
        store.report("job", f"run-{number}", 1, dataclasses.replace(NOT_REACHED, state=TrialState.REACHED))
        store.close_recurrence("job", f"run-{number}")
    assert seen == set(sizes)
    assert all(arm.standard_deviation is None or arm.standard_deviation > 0 for arm in store.arms("job"))


@pytest.mark.parametrize(("policy", "purpose"), [("zeus", Purpose.EXPLORATION), ("bayes", Purpose.SAMPLING)])
def test_after_a_dead_trial_exploration_goes_on_and_the_best_size_prevails(store, clock, policy, purpose):
    spec = dataclasses.replace(SPEC, batch_sizes=(8, 16, 32, 64, 128), default_batch_size=32, policy=policy)
    cost_j = {8: 400.0, 16: 250.0, 32: 200.0, 64: 120.0, 128: 300.0}
    store.open_recurrence(spec, "dead")
    assert store.suggest("job", "dead", 1).purpose is purpose
    clock.move(seconds=spec.max_trial_time_s + 601)
    chosen = []
    for number in range(60):
        store.open_recurrence(spec, f"run-{number}")
        size = store.suggest("job", f"run-{number}", 1).batch_size
        energy_j = cost_j[size] * (1 + 0.04 * ((number * 7) % 5 - 2))
        done = dataclasses.replace(NOT_REACHED, state=TrialState.REACHED, energy_j=energy_j, time_s=energy_j)
        store.report("job", f"run-{number}", 1, done)
        store.close_recurrence("job", f"run-{number}")
        chosen.append(size)
    assert store.trials("job")[0].state is TrialState.EXPIRED
    assert chosen.count(64) > 0.7 * 60


def test_two_runs_started_for_one_schedule_slot_are_two_recurrences_that_share_no_trial(store):
    plans = []
    for run in ("tick-1", "tick-1-again"):
        assert store.open_recurrence(dataclasses.replace(SPEC, policy="zeus"), run).granted
        plans.append(store.suggest("job", run, 1))
    assert [r.number for r in store.recurrences("job")] == [1, 2]
    assert [plan.number for plan in plans] == [1, 2]
    assert [plan.purpose for plan in plans] == [Purpose.EXPLORATION, Purpose.CONCURRENT]
