"""Whatever a server does, the error says what failed, where, and what to do; and nothing is made twice."""

import kfp
import pytest
from fake_kfp import Fault

from zeus_kfp.pipelines.client import RecurringTrainingClient
from zeus_kfp.zeus_core.errors import (
    ClusterAccessError,
    ClusterRefusedError,
    ClusterUnavailableError,
    InvalidValueError,
    RunNotFinishedError,
)

RECURRING = "/apis/v2beta1/recurringruns"


def connected(server, clock, **options):
    return RecurringTrainingClient(
        host=server.url, clock=clock, monotonic=clock.monotonic, sleep=clock.sleep, **options
    )


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (Fault("GET", RECURRING, 401, 9), ClusterAccessError, "answered 401 ordered by the test; log in again"),
        (Fault("GET", RECURRING, 403, 9), ClusterAccessError, "403 .* ask for the right"),
        (Fault("GET", RECURRING, 500, 9), ClusterUnavailableError, "500 .* do it again later"),
        (Fault("GET", RECURRING, 502, 9, text="<h1>Bad Gateway</h1>"), ClusterUnavailableError, "502 Bad Gateway"),
        (Fault("GET", RECURRING, 429, 9), ClusterUnavailableError, "429"),
        (Fault("GET", RECURRING, 400, 9), ClusterRefusedError, "400"),
        (Fault("GET", RECURRING, 0, 9), ClusterUnavailableError, "does not answer"),
        (Fault("GET", RECURRING, 200, 9, text="<form>Log in</form>"), ClusterAccessError, "perhaps a login page"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Fault) else "",
)
def test_a_fault_is_told_with_what_failed_and_where(client, server, fault, error, says):
    fault.hits = 0
    server.fail(fault)
    with pytest.raises(error, match=f"can't list the recurring runs: the KFP API at {server.url} .*{says}"):
        client.list_schedules()


@pytest.mark.parametrize(("status", "tries"), [(503, 4), (0, 4), (401, 1), (400, 1)])
def test_a_read_is_tried_again_only_where_that_may_help(client, server, clock, status, tries):
    fault = server.fail(Fault("GET", RECURRING, status, 99))
    with pytest.raises((ClusterUnavailableError, ClusterAccessError, ClusterRefusedError)):
        client.list_schedules()
    assert (fault.hits, len(clock.slept)) == (tries, tries - 1)


def test_a_server_that_comes_back_is_not_noticed(client, server, pipeline, knobs):
    for path in ("pipelines", "experiments", "recurringruns"):
        server.fail(Fault("GET", f"/apis/v2beta1/{path}", 503, 2))
    assert client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs).change == "created"


@pytest.mark.parametrize("path", ["recurringruns", "pipelines/upload", "experiments"])
def test_what_was_made_though_the_answer_was_lost_is_found_again(client, server, pipeline, knobs, path):
    server.fail(Fault("POST", f"/apis/v2beta1/{path}", 503, after=True))
    with pytest.raises(ClusterUnavailableError, match="what was already made is found again; of a run look first"):
        client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    held = server.books
    assert [len(t) for t in (held.pipelines, held.versions, held.experiments, held.recurring_runs)] == [1, 1, 1, 1]


def test_a_server_that_never_answers_ends_in_a_time_out(server, clock):
    client = connected(server, clock, timeout_s=1)
    server.fail(Fault("GET", RECURRING, hang=True, times=9))
    with pytest.raises(ClusterUnavailableError, match="does not answer .*Read timed out"):
        client.list_schedules()


def test_a_client_that_was_handed_in_is_limited_in_time_too(server, clock):
    client = RecurringTrainingClient(kfp.Client(host=server.url), timeout_s=1, sleep=clock.sleep)
    server.fail(Fault("GET", RECURRING, hang=True, times=9))
    with pytest.raises(ClusterUnavailableError, match="Read timed out"):
        client.list_schedules()


def test_connecting_where_nobody_listens_fails_at_once(clock):
    with pytest.raises(ClusterUnavailableError, match="can't connect: the KFP API at http://127.0.0.1:1 "):
        RecurringTrainingClient(host="http://127.0.0.1:1", sleep=clock.sleep)
    assert clock.slept == []


def test_a_token_is_sent_and_a_wrong_one_is_told(server, clock, monkeypatch, tmp_path):
    server.token = "secret"
    with pytest.raises(ClusterAccessError, match="401 Unauthenticated; log in again"):
        connected(server, clock, existing_token="wrong")
    assert connected(server, clock, existing_token="secret\n").list_schedules() == []
    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("ZEUS_KFP_TOKEN_FILE", str(tmp_path / "token"))
    assert connected(server, clock).list_schedules() == []
    monkeypatch.setenv("ZEUS_KFP_TOKEN_FILE", str(tmp_path / "gone"))
    with pytest.raises(InvalidValueError, match="gone"):
        connected(server, clock)


def test_a_password_in_the_address_is_not_told(clock):
    with pytest.raises(ClusterUnavailableError, match="the KFP API at http://127.0.0.1:1 ") as raised:
        RecurringTrainingClient(host="http://me:secret@127.0.0.1:1", sleep=clock.sleep)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["", "x" * 129, "a\0b", "\ud800", 5])
def test_a_name_that_no_database_keeps_is_refused_before_anything_is_made(client, server, pipeline, knobs, name):
    with pytest.raises(InvalidValueError, match="the schedule's name"):
        client.create_or_update_schedule(name, pipeline, every="6h", parameters=knobs)
    assert all(method == "GET" for method, *_ in server.requests)


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrency": 0},
        {"max_concurrency": 11},
        {"max_concurrency": 2.0},
        {"every": 1},
        {"cron": "x"},
        {"experiment": ""},
        {"service_account": ""},
        {"pipeline_root": 5},
    ],
)
def test_nothing_is_made_of_a_schedule_that_cannot_be(client, server, pipeline, knobs, options):
    options = {"parameters": knobs} | ({} if "cron" in options else {"every": "6h"}) | options
    with pytest.raises(InvalidValueError):
        client.create_or_update_schedule("nightly", pipeline, **options)
    assert all(method == "GET" for method, *_ in server.requests)


def test_a_name_of_any_script_is_found_again(client, pipeline, knobs):
    name = "nächtlich 夜 'quoted' \"50%\" & más/🙂"
    client.create_or_update_schedule(name, pipeline, every="6h", parameters=knobs)
    assert client.create_or_update_schedule(name, pipeline, every="6h", parameters=knobs).change == "unchanged"
    assert [s.name for s in client.list_schedules()] == [name]


@pytest.mark.parametrize("options", [{"timeout_s": float("nan")}, {"timeout_s": -1}, {"poll_s": 0}, {"poll_s": "5"}])
def test_nothing_is_deleted_where_the_wait_cannot_be(client, server, pipeline, knobs, options):
    made = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        client.delete("nightly", **options)
    assert server.books.recurring_runs[made.recurring_run_id]["status"] == "ENABLED"


def test_waiting_tells_each_change_and_survives_an_outage(client, server, clock, pipeline, knobs):
    run = client.submit(pipeline, knobs)
    server.fail(Fault("GET", f"/apis/v2beta1/runs/{run.run_id}", 503, 6))
    told, books = [], server.books

    def progress(status):
        told.append(status.state)
        books.set_state(run.run_id, {"PENDING": "RUNNING", "RUNNING": "CANCELED"}.get(status.state, status.state))

    ended = client.wait(run.run_id, timeout_s=600, progress=progress)
    assert (told, ended.state, ended.succeeded) == (["PENDING", "RUNNING", "CANCELED"], "CANCELED", False)


def test_waiting_ends_with_the_time_and_the_run_goes_on(client, server, pipeline, knobs):
    run = client.submit(pipeline, knobs)
    with pytest.raises(RunNotFinishedError, match="after 60 s .state PENDING.; it goes on"):
        client.wait(run.run_id, timeout_s=65, poll_s=20)
    assert server.books.runs[run.run_id]["state"] == "PENDING"


@pytest.mark.parametrize("options", [{"poll_s": 0}, {"poll_s": float("nan")}, {"timeout_s": -1}])
def test_a_wait_that_cannot_be_is_refused(client, options):
    with pytest.raises(InvalidValueError):
        client.wait("run-1", **options)
