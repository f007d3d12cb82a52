"""Under KFP's own rules of when a run is due, a schedule keeps its rhythm and starts nothing that lies in the past."""

from datetime import UTC, datetime, timedelta

import pytest
from fake_kfp import Controller

HALF_MINUTE = timedelta(seconds=30)


@pytest.fixture
def pass_by(server, clock):
    """Let time pass with the controller looking every half minute, each run ending at once, and return the starts."""
    controller = Controller(server.books)

    def passing(**span):
        starts, until = [], clock.now + timedelta(**span)
        while clock.now < until:
            clock.now = min(until, clock.now + HALF_MINUTE)
            for run in controller.look():
                starts.append(clock.now.strftime("%d %H:%M"))
                server.books.set_state(run["run_id"], "SUCCEEDED")
        return starts

    return passing


def test_an_interval_that_is_changed_more_often_than_it_fires_keeps_its_phase(client, server, pipeline, knobs, pass_by):
    client.create_or_update_schedule("s", pipeline, every="6h", parameters=knobs)
    starts = []
    for hour in range(14):
        client.update_schedule("s", parameters={"max_epochs": 10 + hour})
        starts += pass_by(hours=1)
    assert starts == ["01 18:00", "02 00:00"]
    assert len([r for r in server.books.recurring_runs.values() if r["status"] == "ENABLED"]) == 1


def test_another_interval_counts_from_the_same_moment(client, pipeline, knobs, pass_by):
    client.create_or_update_schedule("s", pipeline, every="6h", parameters=knobs)
    pass_by(hours=3)
    status = client.update_schedule("s", every="4h")
    assert status.next_run == datetime(2026, 12, 1, 16, tzinfo=UTC)
    assert pass_by(hours=10) == ["01 16:00", "01 20:00", "02 00:00"]


@pytest.mark.parametrize(
    ("when", "starts"),
    [
        ({"every": "6h", "start": "2026-11-01T01:00:00Z"}, ["01 13:00", "01 19:00"]),
        ({"every": "6h", "start": "2026-12-01T14:00:00Z"}, ["01 20:00"]),
        ({"cron": "0 0 */6 * * *", "start": "2026-11-01T00:00:00Z"}, ["01 18:00"]),
        ({"cron": "0 0 */6 * * *", "start": "2026-12-01T20:00:00Z"}, []),
    ],
)
def test_a_start_in_the_past_starts_no_missed_run(client, pipeline, knobs, pass_by, when, starts):
    client.create_or_update_schedule("s", pipeline, **when, parameters=knobs)
    assert pass_by(hours=11) == starts
    assert client.create_or_update_schedule("s", pipeline, **when, parameters=knobs).change == "unchanged"


@pytest.mark.parametrize("when", [{"every": "6h"}, {"cron": "0 0 */6 * * *"}])
def test_resuming_makes_up_for_nothing_and_keeps_the_rhythm(client, pipeline, knobs, pass_by, when):
    client.create_or_update_schedule("s", pipeline, **when, parameters=knobs)
    pass_by(hours=7)
    client.pause("s")
    assert pass_by(hours=20) == []
    client.resume("s")
    assert pass_by(hours=6) == ["02 18:00"]


def test_resuming_before_anything_was_missed_makes_nothing_new(client, server, pipeline, knobs, pass_by):
    made = client.create_or_update_schedule("s", pipeline, every="6h", parameters=knobs)
    pass_by(hours=7)
    client.pause("s")
    pass_by(hours=1)
    assert client.resume("s").recurring_run_id == made.recurring_run_id
    assert list(server.books.recurring_runs) == [made.recurring_run_id]
    assert pass_by(hours=5) == ["02 00:00"]


def test_a_run_that_is_late_through_an_outage_is_made_up_for_once(client, clock, pipeline, knobs, pass_by):
    client.create_or_update_schedule("s", pipeline, cron="0 0 3 * * *", parameters=knobs)
    clock.now += timedelta(days=5)
    assert pass_by(days=1) == ["06 12:00", "07 03:00"]
