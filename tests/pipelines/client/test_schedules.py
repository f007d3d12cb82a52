"""Schedules are made, changed, paused and deleted, and no live recurrence is ended."""

from datetime import timedelta

import pytest
from fake_kfp import Fault

from zeus_kfp.pipelines.client import RecurringTrainingClient
from zeus_kfp.zeus_core.errors import InvalidValueError, ScheduleConflictError, UnknownScheduleError

NIGHTLY = "0 0 3 * * *"


def enabled(server):
    return [key for key, r in server.books.recurring_runs.items() if r["status"] == "ENABLED"]


def test_a_schedule_is_made_once_however_often_it_is_asked_for(client, server, pipeline, knobs):
    made = [client.create_or_update_schedule("nightly", pipeline, cron=NIGHTLY, parameters=knobs) for _ in range(3)]
    assert [m.change for m in made] == ["created", "unchanged", "unchanged"]
    (held,) = server.books.recurring_runs.values()
    assert (held["display_name"], held["no_catchup"], held["max_concurrency"]) == ("nightly", True, "1")
    assert held["trigger"] == {"cron_schedule": {"cron": NIGHTLY}}
    assert (len(server.books.pipelines), len(server.books.versions), len(server.books.experiments)) == (1, 1, 1)


def test_parameters_keep_their_types_through_the_api_and_into_the_run(client, server, pipeline, knobs):
    given = knobs | {"eta_knob": 0.3, "higher_is_better": False, "user": "Zoë", "max_retries": 3, "beta_knob": 2.5}
    status = client.create_or_update_schedule("nightly", pipeline, every="1d", parameters=given)
    run = server.books.tick(status.recurring_run_id)
    for held in (status.parameters, run["runtime_config"]["parameters"]):
        assert held == given
        assert {n: type(v) for n, v in held.items()} == {n: type(v) for n, v in given.items()}
        assert [type(size) for size in held["batch_sizes"]] == [int, int, int]


def test_an_update_makes_the_new_before_it_disables_the_old_and_spares_a_live_recurrence(
    client, server, clock, pipeline, knobs
):
    old = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    run = server.books.tick(old.recurring_run_id)
    clock.now += timedelta(minutes=5)
    new = client.create_or_update_schedule("nightly", pipeline, every="8h", parameters=knobs)
    assert (new.change, new.when, new.retiring) == ("updated", "Every 8 h", (old.recurring_run_id,))
    assert enabled(server) == [new.recurring_run_id]
    writes = [(m, p.rsplit("/", 1)[1]) for m, p, _, _ in server.requests if m != "GET" and "recurringruns" in p]
    assert writes == [
        ("POST", "recurringruns"),
        ("POST", "recurringruns"),
        ("POST", f"{old.recurring_run_id}:disable"),
    ]
    server.books.set_state(run["run_id"], "SUCCEEDED")
    clock.now += timedelta(minutes=5)
    again = client.create_or_update_schedule("nightly", pipeline, every="8h", parameters=knobs)
    assert (again.change, again.retiring) == ("unchanged", ())
    assert list(server.books.recurring_runs) == [new.recurring_run_id]
    assert server.books.killed == []


def test_a_recurring_run_that_may_just_have_started_a_run_is_not_deleted_yet(client, server, clock, pipeline, knobs):
    old = client.create_or_update_schedule("nightly", pipeline, cron=NIGHTLY, parameters=knobs)
    clock.now = clock.now.replace(hour=3, minute=0, second=5)
    client.create_or_update_schedule("nightly", pipeline, cron="0 0 4 * * *", parameters=knobs)
    assert old.recurring_run_id in server.books.recurring_runs
    clock.now += timedelta(minutes=3)
    client.resume("nightly")
    assert old.recurring_run_id not in server.books.recurring_runs


def test_a_recurring_run_whose_run_ended_just_now_may_have_let_a_waiting_one_in(client, server, clock, pipeline, knobs):
    old = client.create_or_update_schedule("nightly", pipeline, cron=NIGHTLY, parameters=knobs)
    run = server.books.tick(old.recurring_run_id)
    clock.now += timedelta(hours=1)
    server.books.set_state(run["run_id"], "SUCCEEDED")
    (kept,) = client.delete("nightly").waits_for
    assert "may just have started a run" in kept
    assert client.delete("nightly", timeout_s=150).is_done
    assert clock.slept == [10] * 12


def test_an_old_live_run_behind_hundreds_of_short_ticks_is_seen(client, server, clock, pipeline, knobs):
    old = client.create_or_update_schedule("nightly", pipeline, every="1m", parameters=knobs)
    live = server.books.tick(old.recurring_run_id)
    for _ in range(230):
        clock.now += timedelta(minutes=1)
        server.books.set_state(server.books.tick(old.recurring_run_id)["run_id"], "SUCCEEDED")
    clock.now += timedelta(hours=1)
    server.books.set_state(live["run_id"], "RUNNING")
    deletion = client.delete("nightly")
    assert deletion.waits_for == (f"run {live['run_id']} is RUNNING",)
    assert server.books.killed == []


def test_an_update_that_was_killed_midway_is_finished_by_the_next(client, server, clock, pipeline, knobs):
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    clock.now += timedelta(hours=1)
    new = client.create_or_update_schedule("nightly", pipeline, every="8h", parameters=knobs)
    body = {k: v for k, v in server.books.recurring_runs[new.recurring_run_id].items() if k != "recurring_run_id"}
    mark = f"zeus-kfp: schedule generation 1, sha256 {'0' * 64}"
    leftover = server.books.create_recurring_run(body | {"description": mark})
    assert len(enabled(server)) == 2
    clock.now += timedelta(hours=1)
    status = client.create_or_update_schedule("nightly", pipeline, every="8h", parameters=knobs)
    assert (status.change, enabled(server)) == ("unchanged", [new.recurring_run_id])
    clock.now += timedelta(minutes=3)
    client.resume("nightly")
    assert leftover["recurring_run_id"] not in server.books.recurring_runs


def test_a_paused_schedule_stays_paused_through_an_update_until_it_is_resumed(client, server, pipeline, knobs):
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    assert client.pause("nightly").next_run is None
    updated = client.update_schedule("nightly", every="8h")
    assert (updated.enabled, enabled(server)) == (False, [])
    resumed = client.resume("nightly")
    assert (resumed.enabled, enabled(server)) == (True, [updated.recurring_run_id])


def test_an_update_changes_what_is_given_and_keeps_the_rest(client, server, pipeline, knobs):
    first = client.create_or_update_schedule(
        "nightly", pipeline, cron=NIGHTLY, parameters=knobs, max_concurrency=2, service_account="trainer"
    )
    second = client.update_schedule("nightly", parameters={"target_metric": 0.95})
    held = server.books.recurring_runs[second.recurring_run_id]
    assert second.parameters == knobs | {"target_metric": 0.95}
    assert (held["max_concurrency"], held["service_account"]) == ("2", "trainer")
    assert (second.version_id, held["trigger"]["cron_schedule"]["cron"]) == (first.version_id, NIGHTLY)
    assert client.update_schedule("nightly", parameters={"target_metric": 0.95}).change == "unchanged"


def test_schedules_are_listed_over_all_pages_with_their_next_and_last_run(client, server, clock, pipeline, knobs):
    import zeus_kfp.pipelines.client.api as api

    for number in range(7):
        client.create_or_update_schedule(f"job {number}", pipeline, cron=NIGHTLY, parameters=knobs)
    pages = api.PAGE
    api.PAGE = 3
    try:
        run = server.books.tick(client.schedule("job 3").recurring_run_id)
        listed = client.list_schedules()
    finally:
        api.PAGE = pages
    assert [s.name for s in listed] == [f"job {n}" for n in range(7)]
    assert [s.last_run.run_id if s.last_run else None for s in listed] == [None] * 3 + [run["run_id"]] + [None] * 3
    assert {s.next_run.isoformat() for s in listed} == {"2026-12-02T03:00:00+00:00"}
    assert listed[0].when == "At 03:00, every day (UTC)"


def test_the_last_run_is_known_after_an_update(client, server, clock, pipeline, knobs):
    old = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    run = server.books.tick(old.recurring_run_id)
    assert client.update_schedule("nightly", every="8h").last_run.run_id == run["run_id"]


def test_deleting_waits_for_the_live_recurrence(client, server, clock, pipeline, knobs):
    status = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    run = server.books.tick(status.recurring_run_id)
    clock.now += timedelta(minutes=10)
    assert client.delete("nightly").waits_for == (f"run {run['run_id']} is PENDING",)
    assert enabled(server) == []
    server.books.set_state(run["run_id"], "FAILED")
    assert client.delete("nightly", timeout_s=300).is_done
    assert (server.books.recurring_runs, server.books.killed) == ({}, [])
    with pytest.raises(UnknownScheduleError, match="nightly"):
        client.delete("nightly")


def test_a_recurring_run_of_somebody_else_is_left_alone(client, server, pipeline, knobs):
    mine = client.create_or_update_schedule("mine", pipeline, every="6h", parameters=knobs)
    body = {k: v for k, v in server.books.recurring_runs[mine.recurring_run_id].items() if k != "recurring_run_id"}
    server.books.create_recurring_run(body | {"display_name": "theirs", "description": "made in the UI"})
    with pytest.raises(ScheduleConflictError, match="theirs"):
        client.create_or_update_schedule("theirs", pipeline, every="6h", parameters=knobs)
    with pytest.raises(UnknownScheduleError):
        client.delete("theirs")
    assert [s.name for s in client.list_schedules()] == ["mine"]


def test_a_schedule_that_is_there_is_not_made_anew(client, pipeline, knobs):
    client.create_schedule("nightly", pipeline, every="6h", parameters=knobs)
    with pytest.raises(ScheduleConflictError, match="already there"):
        client.create_schedule("nightly", pipeline, every="8h", parameters=knobs)


def test_of_two_updates_at_once_one_stands_and_the_other_is_told(client, server, clock, pipeline, knobs, monkeypatch):
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    create, books = server.books.create_recurring_run, server.books

    def with_a_rival(body):
        made = create(body)
        clock.now += timedelta(seconds=1)
        create(body | {"trigger": {"periodic_schedule": {"interval_second": 60}}})
        return made

    monkeypatch.setattr(books, "create_recurring_run", with_a_rival)
    with pytest.raises(ScheduleConflictError, match="theirs stands"):
        client.create_or_update_schedule("nightly", pipeline, every="8h", parameters=knobs)
    (left,) = [r for r in books.recurring_runs.values() if r["status"] == "ENABLED"]
    assert left["trigger"]["periodic_schedule"]["interval_second"] == "60"


def test_what_an_update_does_not_name_stays(client, server, pipeline, knobs):
    client.create_or_update_schedule(
        "nightly",
        pipeline,
        every="6h",
        start="2027-01-01T00:00:00Z",
        end="2028-01-01T00:00:00Z",
        parameters=knobs,
        max_concurrency=3,
        service_account="trainer",
        pipeline_root="s3://here",
        experiment="mine",
    )
    updated = client.update_schedule("nightly", cron=NIGHTLY)
    held = server.books.recurring_runs[updated.recurring_run_id]
    bounds = {"start_time": "2027-01-01T00:00:00Z", "end_time": "2028-01-01T00:00:00Z"}
    assert held["trigger"] == {"cron_schedule": {"cron": NIGHTLY, **bounds}}
    assert (held["max_concurrency"], held["service_account"]) == ("3", "trainer")
    assert held["runtime_config"]["pipeline_root"] == "s3://here"
    assert server.books.experiments[held["experiment_id"]]["display_name"] == "mine"
    updated = client.update_schedule(
        "nightly", end="none", service_account="other", pipeline_root="s3://there", experiment="yours"
    )
    held = server.books.recurring_runs[updated.recurring_run_id]
    assert held["trigger"]["cron_schedule"] == {"cron": NIGHTLY, "start_time": bounds["start_time"]}
    assert (held["service_account"], held["runtime_config"]["pipeline_root"]) == ("other", "s3://there")
    assert server.books.experiments[held["experiment_id"]]["display_name"] == "yours"


def test_what_kfp_filled_in_makes_no_change(client, server, clock, pipeline, knobs):
    made = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    server.books.recurring_runs[made.recurring_run_id]["service_account"] = "pipeline-runner"
    clock.now += timedelta(hours=7)
    assert client.update_schedule("nightly", every="6h").change == "unchanged"
    assert client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs).change == "unchanged"
    assert list(server.books.recurring_runs) == [made.recurring_run_id]


def test_a_schedule_may_be_asked_for_paused_or_not_and_is_left_as_it_is_otherwise(client, pipeline, knobs):
    def asked(**options):
        status = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs, **options)
        return status.enabled, str(status.change)

    assert asked(paused=True) == (False, "created")
    assert asked() == (False, "unchanged")
    assert asked(paused=False) == (True, "updated")
    assert asked() == (True, "unchanged")
    assert asked(paused=True) == (False, "updated")
    assert asked(paused=True) == (False, "unchanged")
    assert asked(paused=False, max_concurrency=2) == (True, "updated")


def test_a_schedule_that_was_deleted_and_waits_is_not_taken_for_a_paused_one(client, server, clock, pipeline, knobs):
    made = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    run = server.books.tick(made.recurring_run_id)
    assert not client.delete("nightly").is_done
    (listed,) = client.list_schedules()
    assert (listed.is_deleted, listed.enabled, listed.next_run) == (True, False, None)
    assert listed.last_run.run_id == run["run_id"]
    assert listed.in_words().startswith("nightly (deleted, but for its last run)")
    for call in (client.pause, client.resume, client.update_schedule, client.run_now):
        with pytest.raises(UnknownScheduleError, match="was deleted, and what is left of it goes with its last run"):
            call("nightly")
    again = client.create_schedule("nightly", pipeline, every="6h", parameters=knobs)
    assert (again.change, again.enabled, enabled(server)) == ("created", True, [again.recurring_run_id])
    server.books.set_state(run["run_id"], "SUCCEEDED")
    clock.now += timedelta(minutes=5)
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    assert (list(server.books.recurring_runs), server.books.killed) == ([again.recurring_run_id], [])


def test_a_delete_that_waited_is_finished_by_the_next(client, server, clock, pipeline, knobs):
    made = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    run = server.books.tick(made.recurring_run_id)
    assert [client.delete("nightly").is_done for _ in range(2)] == [False, False]
    assert len(server.books.recurring_runs) == 2
    server.books.set_state(run["run_id"], "SUCCEEDED")
    clock.now += timedelta(minutes=5)
    assert client.delete("nightly").is_done
    assert server.books.recurring_runs == {}


@pytest.mark.parametrize("ahead_h", [-1, 1])
def test_a_clock_that_differs_from_the_clusters_ends_no_run_that_is_on_its_way(server, clock, pipeline, knobs, ahead_h):
    theirs = RecurringTrainingClient(host=server.url, clock=lambda: clock.now + timedelta(hours=ahead_h))
    old = theirs.create_or_update_schedule("nightly", pipeline, cron=NIGHTLY, parameters=knobs)
    clock.now = clock.now.replace(hour=3, minute=0, second=5)
    theirs.pause("nightly")
    assert "may just have started a run" in theirs.delete("nightly").waits_for[0]
    assert old.recurring_run_id in server.books.recurring_runs
    clock.now += timedelta(minutes=3)
    assert theirs.delete("nightly").is_done


def test_a_long_run_that_ends_behind_short_ones_may_have_let_a_waiting_one_in(client, server, clock, pipeline, knobs):
    made = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs, max_concurrency=2)
    long = server.books.tick(made.recurring_run_id)
    clock.now += timedelta(hours=1)
    server.books.set_state(server.books.tick(made.recurring_run_id)["run_id"], "SUCCEEDED")
    clock.now += timedelta(hours=1)
    server.books.set_state(long["run_id"], "SUCCEEDED")
    assert "may just have started a run" in client.delete("nightly").waits_for[0]


def test_a_recurring_run_that_somebody_deleted_meanwhile_stops_nothing(client, server, clock, pipeline, knobs):
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    server.fail(Fault("POST", ".*:disable", 404))
    assert client.pause("nightly").enabled
    server.fail(Fault("POST", ".*:disable", 404))
    server.fail(Fault("DELETE", ".*/recurringruns/.*", 404))
    clock.now += timedelta(minutes=5)
    assert client.delete("nightly").is_done


def test_a_schedule_whose_every_run_would_start_at_once_is_refused(client, server, pipeline, knobs):
    with pytest.raises(InvalidValueError, match="start_now=true in a schedule"):
        client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs | {"start_now": True})
    assert server.books.recurring_runs == {}
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    with pytest.raises(InvalidValueError, match="start_now=true in a schedule"):
        client.update_schedule("nightly", parameters={"start_now": True})


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"parameters": [1]}, r"parameters must be a mapping of values by name, not \[1\]"),
        ({"parameters": "job_id=a"}, "parameters must be a mapping"),
        ({"paused": "yes"}, "paused must be true or false, not 'yes'"),
        ({"name": b"nightly"}, "the schedule's name must be text"),
        ({"pipeline": ""}, "'' is no pipeline"),
        ({"experiment": 3}, "the experiment must be text"),
    ],
)
def test_what_a_schedule_cannot_have_is_refused_before_anything_is_made(client, server, pipeline, knobs, option, says):
    usual = {"name": "nightly", "pipeline": pipeline, "every": "6h", "parameters": knobs}
    with pytest.raises(InvalidValueError, match=says):
        client.create_schedule(**usual | option)
    assert (server.books.recurring_runs, server.books.pipelines) == ({}, {})


def test_parameters_that_are_no_mapping_change_nothing(client, server, pipeline, knobs):
    made = client.create_schedule("nightly", pipeline, every="6h", parameters=knobs)
    for change in (client.update_schedule, client.run_now):
        with pytest.raises(InvalidValueError, match="parameters must be a mapping"):
            change("nightly", parameters=["max_epochs"])
    assert client.schedule("nightly").recurring_run_id == made.recurring_run_id


@pytest.mark.parametrize("run_id", [3, None, "", "a/b"])
def test_what_is_no_runs_id_is_not_asked_for(client, run_id):
    with pytest.raises(InvalidValueError, match="is no run's id"):
        client.wait(run_id)
