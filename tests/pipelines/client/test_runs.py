"""Pipelines are uploaded when their content changed, and runs are started by hand."""

import pytest
import yaml
from fake_kfp import Fault

from zeus_kfp.pipelines.client import RecurringTrainingClient
from zeus_kfp.pipelines.client.package import PipelinePackage
from zeus_kfp.pipelines.recurring_training import recurring_training
from zeus_kfp.zeus_core.errors import ClusterUnavailableError

PATHS = ("upload", "upload_version")


def uploads(server):
    return [path.rsplit("/", 1)[1] for method, path, *_ in server.requests if path.endswith(PATHS)]


def test_a_pipeline_is_uploaded_once_and_a_version_only_when_its_content_changed(client, server, pipeline, tmp_path):
    first = client.upload(pipeline)
    assert client.upload(pipeline).version_id == first.version_id
    rewritten = tmp_path / "same.yaml"
    rewritten.write_text("# a comment\n" + yaml.safe_dump_all(yaml.safe_load_all(pipeline.read_text())))
    assert client.upload(rewritten).version_id == first.version_id
    changed = tmp_path / "changed.yaml"
    changed.write_text(pipeline.read_text().replace("defaultValue: 7.0", "defaultValue: 8.0"))
    second = client.upload(changed)
    assert (second.pipeline_id, second.is_new, first.is_new) == (first.pipeline_id, True, True)
    assert client.upload(pipeline).version_id == first.version_id
    assert uploads(server) == ["upload", "upload_version"]
    assert len({v["name"] for v in server.books.versions.values()}) == 2


def test_what_is_uploaded_is_the_pipeline_with_its_secret(client, server, pipeline):
    version = server.books.versions[client.upload(pipeline).version_id]
    assert version["pipeline_spec"]["pipeline_spec"]["pipelineInfo"]["name"] == "recurring-training"
    assert "secretAsEnv" in str(version["pipeline_spec"]["platform_spec"])


def test_two_uploads_of_the_same_at_once_give_one_version(client, server, pipeline, monkeypatch):
    upload, package = server.books.upload_pipeline, PipelinePackage.of(pipeline)

    def after_a_rival(name, description, content, namespace):
        upload(name, description, content, namespace)
        return upload(name, description, content, namespace)

    monkeypatch.setattr(server.books, "upload_pipeline", after_a_rival)
    uploaded = client.upload(pipeline)
    assert package.digest in server.books.versions[uploaded.version_id]["description"]
    assert len(server.books.versions) == 1


def test_a_pipeline_of_the_python_dsl_is_compiled_on_the_way(client, server, knobs):
    run = client.submit(recurring_training(train="trainer:train", job_id="x"), knobs, run_name="by hand")
    held = server.books.runs[run.run_id]
    assert (held["display_name"], held["runtime_config"]["parameters"]) == ("by hand", knobs)
    assert "service_account" not in held


def test_a_run_by_hand_has_the_schedules_parameters_but_for_those_given(client, server, pipeline, knobs):
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs, service_account="trainer")
    client.run_now("nightly")
    client.run_now("nightly", {"eta_knob": 1.0})
    client.run_now("nightly", if_due=True)
    plain, changed, if_due = server.books.runs.values()
    assert plain["runtime_config"]["parameters"] == knobs | {"start_now": True}
    assert changed["runtime_config"]["parameters"] == knobs | {"eta_knob": 1.0, "start_now": True}
    assert if_due["runtime_config"]["parameters"] == knobs
    assert plain["service_account"] == "trainer"
    assert plain["display_name"] == "nightly 2026-12-01 12:00:00 by hand"
    assert server.books.one(server.books.pipelines, "pipeline-1")["name"] == "recurring-training"


def test_everything_stays_in_the_namespace_of_a_multi_user_installation(server, clock, pipeline, knobs, monkeypatch):
    server.multi_user = True
    monkeypatch.setenv("ZEUS_KFP_NAMESPACE", "team-a\n")
    client = RecurringTrainingClient(host=server.url, clock=clock, sleep=clock.sleep)
    client.create_or_update_schedule("nightly", pipeline, every="6h", parameters=knobs)
    client.list_schedules()
    lists = [(path.rsplit("/", 1)[1], q) for m, path, q, _ in server.requests if m == "GET" and path.count("/") == 3]
    assert {name for name, q in lists if q.get("namespace") == "team-a"} == {
        "pipelines", "experiments", "recurringruns", "runs"
    }  # fmt: skip
    assert [q for name, q in lists if name != "healthz" and q.get("namespace") != "team-a"] == []
    (experiment,) = server.books.experiments.values()
    assert experiment["namespace"] == "team-a"


def test_waiting_tells_how_many_steps_have_ended(client, server, pipeline, knobs):
    run = client.submit(pipeline, knobs)
    ended = {"display_name": "open-recurrence", "end_time": "2026-12-01T12:01:00Z"}
    live = {"display_name": "suggest-batch-size", "end_time": "1970-01-01T00:00:00Z"}
    server.books.runs[run.run_id]["run_details"] = {"task_details": [ended, live, {"display_name": "train"}]}
    told = []

    def progress(status):
        told.append(status.in_words())
        server.books.set_state(run.run_id, "SUCCEEDED")

    assert client.wait(run.run_id, progress=progress).succeeded
    assert told[0] == f"run {run.run_id} ({run.name}): PENDING, 1 of 3 steps so far"


@pytest.mark.parametrize("status", [0, 503])
@pytest.mark.parametrize("after", [True, False], ids=["made, and the answer lost", "not made"])
def test_a_run_is_started_once_even_where_the_answer_is_lost(client, server, pipeline, knobs, status, after):
    first = client.submit(pipeline, knobs, run_name="mine")
    server.fail(Fault("POST", ".*/runs", status, times=2, after=after))
    second = client.submit(pipeline, knobs, run_name="mine")
    assert list(server.books.runs) == [first.run_id, second.run_id]


def test_a_run_that_cannot_be_started_is_given_up_after_four_tries(client, server, pipeline, knobs):
    fault = server.fail(Fault("POST", ".*/runs", 503, times=9))
    with pytest.raises(ClusterUnavailableError, match="can't start the run 'mine'"):
        client.submit(pipeline, knobs, run_name="mine")
    assert (fault.hits, server.books.runs) == (4, {})
