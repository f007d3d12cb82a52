"""Whatever people, ticks and lost answers do in whatever order, no live recurrence is ended and one schedule stands."""

from datetime import timedelta

from fake_kfp import Books, FakeKfp, Fault
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from zeus_kfp.pipelines.client import RecurringTrainingClient
from zeus_kfp.zeus_core.errors import ClusterUnavailableError, UnknownScheduleError

KNOBS = {"job_id": "x", "train_entry_point": "m:f", "batch_sizes": [8], "default_batch_size": 8, "target_metric": 0.9}
WRITES = {"POST": r".*/recurringruns(/.*)?", "DELETE": ".*/recurringruns/.*"}


class Cluster(RuleBasedStateMachine):
    """One schedule on a server, and a clock."""

    clock_type, description = None, None

    def __init__(self):
        super().__init__()
        self.clock = self.clock_type()
        self.server = FakeKfp(Books(self.clock), self.description).__enter__()
        self.client = RecurringTrainingClient(
            host=self.server.url, clock=self.clock, monotonic=self.clock.monotonic, sleep=self.clock.sleep
        )

    @rule(hours=st.integers(1, 3), lost=st.sampled_from([None, "POST", "DELETE"]), after=st.booleans())
    def put(self, hours, lost, after):
        if lost:
            self.server.fail(Fault(lost, WRITES[lost], 503, times=4, after=after))
        try:
            status = self.asked_for(hours)
        except ClusterUnavailableError:
            self.server.forget_faults()
            status = self.asked_for(hours)
        self.server.forget_faults()
        assert status.when == f"Every {hours} h"
        enabled = [key for key, r in self.server.books.recurring_runs.items() if r["status"] == "ENABLED"]
        assert enabled == ([status.recurring_run_id] if status.enabled else [])

    def asked_for(self, hours):
        return self.client.create_or_update_schedule("s", "recurring_training", every=f"{hours}h", parameters=KNOBS)

    @rule(pause=st.booleans())
    def switch(self, pause):
        try:
            status = self.client.pause("s") if pause else self.client.resume("s")
        except UnknownScheduleError:
            return
        assert status.enabled is not pause

    @rule()
    def delete(self):
        try:
            self.client.delete("s")
        except UnknownScheduleError:
            return
        assert not [r for r in self.server.books.recurring_runs.values() if r["status"] == "ENABLED"]

    @precondition(lambda self: any(r["status"] == "ENABLED" for r in self.server.books.recurring_runs.values()))
    @rule()
    def tick(self):
        for key, recurring in list(self.server.books.recurring_runs.items()):
            if recurring["status"] == "ENABLED":
                self.server.books.tick(key)

    @precondition(lambda self: any(r["state"] == "PENDING" for r in self.server.books.runs.values()))
    @rule(state=st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED"]))
    def go_on(self, state):
        run = next(r for r in self.server.books.runs.values() if r["state"] == "PENDING")
        self.server.books.set_state(run["run_id"], state)

    @rule(minutes=st.integers(1, 300))
    def later(self, minutes):
        self.clock.now += timedelta(minutes=minutes)

    @invariant()
    def no_live_recurrence_was_ended(self):
        assert self.server.books.killed == []

    @invariant()
    def the_api_was_spoken_to_as_it_is_described(self):
        assert self.server.errors == []

    def teardown(self):
        self.server.__exit__()


def test_any_order_of_calls_ticks_and_lost_answers(description, clock):
    Cluster.clock_type, Cluster.description = type(clock), description
    few = settings(max_examples=15, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Cluster, settings=few)
