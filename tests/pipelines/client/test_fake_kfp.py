"""The loopback server keeps to KFP's published API, and has the oddities that were measured on a real backend."""

import kfp
import pytest
from fake_kfp.openapi import NotDescribedError

RUNS = "/apis/v2beta1/recurringruns"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"display_name": 5}, "5 is not of type 'string'"),
        ({"displayName": "x"}, "'displayName' was unexpected"),
        ({"mode": "ON"}, "'ON' is not one of"),
        ({"trigger": {"cron_schedule": {"cron": "0 0 3 * * *", "zone": "UTC"}}}, "'zone' was unexpected"),
        ({"no_catchup": "true"}, "is not of type 'boolean'"),
    ],
)
def test_a_request_that_the_api_does_not_describe_is_noticed(published, body, says):
    with pytest.raises(NotDescribedError, match=says):
        published.check_body(published.route("POST", RUNS), body)


def test_a_64_bit_integer_may_be_a_number_in_a_request_and_is_text_in_a_response(published):
    route = published.route("POST", RUNS)
    published.check_body(route, {"max_concurrency": 2})
    published.check_response(route, 200, {"max_concurrency": "2"})
    with pytest.raises(NotDescribedError, match="2 is not of type 'string'"):
        published.check_response(route, 200, {"max_concurrency": 2})


@pytest.mark.parametrize(("method", "path"), [("GET", "/apis/v2beta1/artifacts"), ("PUT", RUNS), ("GET", "/")])
def test_what_the_api_does_not_have_is_noticed(published, method, path):
    with pytest.raises(NotDescribedError, match="the API has no"):
        published.route(method, path)


def test_a_query_parameter_is_checked(published):
    with pytest.raises(NotDescribedError, match="no query parameter 'limit'"):
        published.check_query(published.route("GET", RUNS), {"limit": "5"})
    with pytest.raises(NotDescribedError, match="is no integer"):
        published.check_query(published.route("GET", RUNS), {"page_size": "many"})


@pytest.fixture
def plain(server):
    return kfp.Client(host=server.url)


def test_kfps_own_client_catches_up_and_is_clamped_without_a_word(plain, server, client, pipeline, knobs):
    uploaded = client.upload(pipeline)
    experiment = plain.create_experiment("e")
    made = [
        plain.create_recurring_run(
            experiment.experiment_id, "same name", cron_expression="0 0 3 * * *", max_concurrency=concurrency,
            pipeline_id=uploaded.pipeline_id, version_id=uploaded.version_id, params=knobs, enable_caching=True,
        )
        for concurrency in (0, 99)
    ]  # fmt: skip
    assert [(r.max_concurrency, r.display_name, r.no_catchup) for r in made] == [
        ("1", "same name", None),
        ("10", "same name", None),
    ]
    assert all("enableCache" not in str(body["runtime_config"]) for body in server.sent("POST", "recurringruns"))


def test_a_second_pipeline_of_a_name_is_refused(plain, pipeline):
    plain.upload_pipeline(str(pipeline), pipeline_name="p")
    with pytest.raises(Exception, match="409"):
        plain.upload_pipeline(str(pipeline), pipeline_name="p")


def test_deleting_a_recurring_run_takes_its_live_runs_away(client, server, pipeline, knobs, plain):
    schedule = client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    run = server.books.tick(schedule.recurring_run_id)
    plain.delete_recurring_run(schedule.recurring_run_id)
    assert (server.books.killed, server.books.runs[run["run_id"]]["state"]) == ([run["run_id"]], "PENDING")
