"""The command line: what it prints, what it changes, and how it fails."""

import csv
import dataclasses
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from zeus_kfp.pipelines.cli import app, main
from zeus_kfp.pipelines.store_commands import moment
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec, Profile, TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, JobInUseError, UnknownJobError, UnknownRecurrenceError
from zeus_kfp.zeus_core.learnt import Learnt

SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, policy="zeus")


@pytest.fixture
def store(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("ZEUS_KFP_STORE_URL", url)
    with StateStore(url) as store:
        yield store


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_dead_recurrence_is_closed_by_hand_and_frees_its_slot(store):
    store.open_recurrence(SPEC, "dead run")
    assert not store.open_recurrence(SPEC, "next").granted
    assert run("recurrences", "close", "job", "dead run") == "recurrence 1 of job: not_reached after 0 trials\n"
    assert store.recurrence("job", "dead run").state is RecurrenceState.NOT_REACHED
    assert store.open_recurrence(SPEC, "next").granted


@pytest.fixture
def two_jobs(store):
    """Fill the store with a job of two recurrences and one of none that ended."""
    done = TrialOutcome(
        TrialState.REACHED, epochs=2, metric=0.95, energy_j=100.0, time_s=10.0, energy_source="nvml", max_power_w=50.0
    )
    for number in (1, 2):
        store.open_recurrence(SPEC, f"run-{number}")
        store.suggest("job", f"run-{number}", 1)
        profile = Profile(16, "train", 150.0, 120.0, 1000.0, "A40", 1)
        store.report("job", f"run-{number}", 1, done, [profile] if number == 1 else [])
        store.close_recurrence("job", f"run-{number}")
    other = dataclasses.replace(SPEC, job_id="with, comma", user="ann")
    store.open_recurrence(other, "run")
    return store


def listed(*arguments):
    return json.loads(run(*arguments, "--format", "json"))


def test_jobs_are_listed_with_where_they_stand(two_jobs):
    found = listed("jobs", "list")
    assert [(j["job_id"], j["phase"], j["recurrence_count"], j["latest_state"]) for j in found] == [
        ("job", "running", 2, "reached"),
        ("with, comma", "running", 1, "open"),
    ]
    assert (found[0]["rated_power_w"], found[0]["min_recurrence_cost"], found[0]["beta_knob"]) == (50.0, 300.0, 2.0)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (["--user", "ann"], ["with, comma"]),
        (["--job", "job"], ["job"]),
        (["--phase", "completed"], []),
        (["--since", "1h"], ["job", "with, comma"]),
        (["--since", "2999-01-01"], []),
    ],
)
def test_jobs_are_filtered(two_jobs, filters, names):
    assert [job["job_id"] for job in listed("jobs", "list", *filters)] == names


def test_recurrences_trials_profiles_and_arms_are_listed(two_jobs):
    recurrences = listed("recurrences", "list", "--job", "job", "--state", "reached")
    assert [(r["number"], r["run_id"], r["batch_size"], r["cost"]) for r in recurrences] == [
        (1, "run-1", 16, 300.0),
        (2, "run-2", 8, 300.0),
    ]
    trials = listed("trials", "list", "--batch-size", "8")
    assert [(t["job_id"], t["number"], t["state"], t["energy_j"]) for t in trials] == [("job", 2, "reached", 100.0)]
    assert listed("trials", "list", "--user", "ann") == []
    (profile,) = listed("profiles", "list")
    assert (profile["trial_number"], profile["power_limit_w"], profile["accelerator"]) == (1, 150.0, "A40")
    assert [(a["batch_size"], a["count"]) for a in listed("arms", "list", "--job", "job")] == [(8, 1), (16, 1), (32, 0)]


def test_a_list_is_csv_for_programs_and_a_table_for_people(two_jobs):
    rows = list(csv.DictReader(run("jobs", "list", "--format", "csv").splitlines()))
    assert [row["job_id"] for row in rows] == ["job", "with, comma"]
    assert (rows[0]["batch_sizes"], rows[0]["trial_count"], rows[1]["latest_closed_at"]) == ("[8, 16, 32]", "2", "")
    table = run("trials", "list", "--job", "job")
    assert "batch" in table and "reached" in table and "300" in table


def test_no_figure_or_state_is_cut_in_two_where_the_terminal_is_narrow(store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    run_id = "0f3c1f9e-9d4a-4a53-9d43-f9d1d4f8a6f0"
    store.open_recurrence(SPEC, run_id)
    store.suggest("job", run_id, 1)
    measured = {"metric": 0.971111, "energy_j": 123456.7, "time_s": 6.36624, "energy_source": "nvml"}
    store.report("job", run_id, 1, TrialOutcome(TrialState.REACHED, epochs=12, max_power_w=50.0, **measured))
    store.close_recurrence("job", run_id)
    assert {"reached", "123457", "6.366", "12"} <= set(run("recurrences", "list", "--job", "job").split())
    assert {"reached", "123457", "6.366", "0.9711"} <= set(run("trials", "list", "--job", "job").split())


@pytest.mark.parametrize(("estimated", "mark"), [(True, "≈"), (False, "")])
def test_an_estimate_is_called_one_in_every_table(store, monkeypatch, estimated, mark):
    monkeypatch.setenv("COLUMNS", "160")
    store.open_recurrence(SPEC, "run-1")
    store.suggest("job", "run-1", 1)
    spent = {"metric": 0.97, "energy_j": 1234.0, "time_s": 6.0, "max_power_w": 50.0, "energy_estimated": estimated}
    row = Profile(16, "train", None, 45.5, 800.0, "CPU", 4, energy_estimated=estimated)
    store.report("job", "run-1", 1, TrialOutcome(TrialState.REACHED, epochs=12, **spent), [row])
    store.close_recurrence("job", "run-1")
    for records in ("recurrences", "trials"):
        assert f"{mark}1234" in run(records, "list", "--job", "job").split()
    assert {f"{mark}45.5", "CPU", "4"} <= set(run("profiles", "list", "--job", "job").split())


def test_a_hopeless_trial_is_told_apart_in_every_form(two_jobs):
    with StateStore.from_environment() as store:
        store.open_recurrence(store.job("job").spec, "run-9")
        plan = store.suggest("job", "run-9", 1)
        spent = {"energy_j": 1.0, "time_s": 1.0, "max_power_w": 1.0}
        outcome = TrialOutcome(TrialState.NOT_REACHED, "hopeless: …", epochs=4, least_epochs=30.0, **spent)
        store.report("job", "run-9", 1, outcome)
    assert "hopeless" in run("trials", "list", "--job", "job", "--run", "run-9")
    (row,) = json.loads(run("trials", "list", "--job", "job", "--run", "run-9", "--format", "json"))
    assert (row["ended"], row["state"], row["least_epochs"]) == ("hopeless", "not_reached", 30.0)
    assert json.loads(run("trials", "show", "job", str(plan.number)))["least_epochs"] == 30.0


@pytest.mark.parametrize(
    "name", ["a'b\"c", "x;-- drop", "50 % of {all} %s", "日本 🚀", "new\nline", "[red]markup[/red]", "é" * 255]
)
def test_any_name_that_the_store_keeps_goes_through_the_command_line(store, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    store.open_recurrence(dataclasses.replace(SPEC, job_id=name, user=name), name)
    store.suggest(name, name, 1)
    assert [(job["job_id"], job["user"]) for job in listed("jobs", "list", "--user", name)] == [(name, name)]
    assert [t["run_id"] for t in listed("trials", "list", "--job", name)] == [name]
    assert json.loads(run("jobs", "show", name))["job"]["spec"]["job_id"] == name
    (row,) = csv.DictReader(io.StringIO(run("jobs", "list", "--format", "csv"), newline=""))
    assert row["job_id"] == name
    if len(name) < 20 and "\n" not in name:
        assert name in run("jobs", "list")
    run("recurrences", "close", name, name)
    run("jobs", "delete", name, "--with-history", "--yes")
    assert store.jobs() == ()


@pytest.mark.parametrize("name", ["", "nul\0", "x" * 10_000])
def test_a_name_that_no_store_keeps_is_refused_by_the_command_line(store, name):
    result = CliRunner().invoke(app, ["jobs", "show", name])
    assert result.exit_code == 1 and isinstance(result.exception, InvalidValueError | UnknownJobError)


def test_one_thing_is_shown_whole(two_jobs):
    assert [arm["batch_size"] for arm in json.loads(run("jobs", "show", "job"))["arms"]] == [8, 16, 32]
    shown = json.loads(run("recurrences", "show", "job", "run-1"))
    assert shown["recurrence"]["number"] == 1 and [t["number"] for t in shown["trials"]] == [1]
    assert json.loads(run("trials", "show", "job", "2"))["batch_size"] == 8


def test_a_job_is_exported_whole(two_jobs, tmp_path):
    run("jobs", "export", "job", "--output", str(tmp_path / "job.json"))
    document = json.loads((tmp_path / "job.json").read_text())
    assert {name: len(document[name]) for name in ("recurrences", "trials", "profiles", "arms")} == {
        "recurrences": 2,
        "trials": 2,
        "profiles": 1,
        "arms": 3,
    }
    assert document["job"]["spec"]["batch_sizes"] == [8, 16, 32]


def test_a_job_is_completed_and_goes_on(two_jobs):
    run("jobs", "complete", "job", "--yes")
    refused = two_jobs.open_recurrence(SPEC, "next")
    assert not refused.granted and "`zeus-kfp jobs reopen job`" in refused.why
    run("jobs", "reopen", "job")
    assert two_jobs.open_recurrence(SPEC, "next").granted


def test_a_deleted_job_is_listed_no_longer_and_keeps_its_history_unless_told_otherwise(two_jobs):
    run("jobs", "delete", "job", "--yes")
    assert [job["job_id"] for job in listed("jobs", "list")] == ["with, comma"]
    assert [job["job_id"] for job in listed("jobs", "list", "--phase", "deleted")] == ["job"]
    assert len(two_jobs.trials("job")) == 2
    assert "was deleted" in two_jobs.open_recurrence(SPEC, "next").why
    run("jobs", "delete", "job", "--with-history", "--yes")
    with pytest.raises(UnknownJobError):
        two_jobs.job("job")
    assert two_jobs.open_recurrence(SPEC, "next").number == 1


@pytest.mark.parametrize(("options", "kept"), [([], 2), (["--with-history"], 0)])
def test_a_job_that_is_reset_explores_anew(two_jobs, options, kept):
    run("jobs", "reset", "job", "--yes", *options)
    assert len(two_jobs.trials("job")) == kept
    assert two_jobs.learnt("job") == two_jobs.learnt_from_rows("job") == Learnt()
    two_jobs.open_recurrence(SPEC, "next")
    plan = two_jobs.suggest("job", "next", 1)
    assert (plan.batch_size, plan.number, plan.max_power_w) == (16, kept + 1, 0.0)


def test_a_job_under_way_is_neither_deleted_nor_reset(two_jobs):
    for command in ("delete", "reset"):
        result = CliRunner().invoke(app, ["jobs", command, "with, comma", "--yes"])
        assert isinstance(result.exception, JobInUseError) and "'run'" in str(result.exception)


def test_nothing_is_done_unasked(two_jobs):
    for command in ("complete", "delete", "reset"):
        assert CliRunner().invoke(app, ["jobs", command, "job"], input="n\n").exit_code == 1
    assert len(listed("jobs", "list", "--phase", "running")) == 2


def test_the_database_is_checked_and_upgraded(store):
    unmade = CliRunner().invoke(app, ["db", "check"])
    assert unmade.exit_code == 1 and "run `zeus-kfp db upgrade`" in unmade.output
    run("db", "upgrade")
    assert "up to date" in run("db", "check")


@pytest.mark.parametrize("since", ["yesterday", "7 days", "", "99999999d", "2026-13-01"])
def test_a_moment_that_is_none_is_refused(since):
    with pytest.raises(InvalidValueError, match="--since must be like 2027-01-31"):
        moment(since, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_report_is_written_from_the_store(store, tmp_path):
    store.open_recurrence(SPEC, "run")
    assert run("report", "job", "--output", str(tmp_path / "page.html")).strip() == str(tmp_path / "page.html")
    assert "job" in (tmp_path / "page.html").read_text()


def test_an_error_of_ours_is_one_line_and_exit_code_1(store, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["zeus-kfp", "report", "nobody"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "zeus-kfp: the store holds no job 'nobody': open_recurrence registers it\n"


def test_drift_is_signalled_once_listed_and_taken_by_the_next_recurrence(two_jobs):
    for _ in range(2):
        said = run("jobs", "signal-drift", "job", "--reason", "accuracy fell", "--value", "0.7")
    assert said.startswith("drift of job waits for its next run since ") and said.endswith(" UTC: accuracy fell\n")
    (drift,) = json.loads(run("jobs", "drifts", "job", "--format", "json"))
    assert (drift["reason"], drift["value"], drift["recurrence_number"]) == ("accuracy fell", 0.7, None)
    assert "Drift was signalled: accuracy fell" in two_jobs.open_recurrence(SPEC, "next").why
    assert json.loads(run("jobs", "drifts", "job", "--format", "json"))[0]["recurrence_number"] == 3


def test_drift_needs_a_reason_and_a_job(store):
    assert CliRunner().invoke(app, ["jobs", "signal-drift", "job"]).exit_code == 2
    result = CliRunner().invoke(app, ["jobs", "signal-drift", "nobody", "--reason", "x"])
    assert isinstance(result.exception, UnknownJobError)


def test_what_may_be_pruned_is_listed_and_nothing_is_deleted(store):
    for run_id, version in (("a", "v1"), ("b", "v2")):
        store.open_recurrence(SPEC, run_id, data_version=version)
        store.suggest("job", run_id, 1)
        done = TrialOutcome(TrialState.REACHED, energy_j=1.0, time_s=1.0, max_power_w=1.0, model_uri=f"s3://{run_id}")
        store.report("job", run_id, 1, done)
        store.close_recurrence("job", run_id)
    found = json.loads(run("jobs", "prunable", "job", "--format", "json"))
    assert [(p["kind"], p["uri"], p["data_epoch"]) for p in found] == [
        ("data", "", "v1-0"),
        ("model", "s3://a", "v1-0"),
    ]
    assert "s3://a" in run("jobs", "prunable", "job", "--format", "csv")
    assert [t.model_uri for t in store.trials("job")] == ["s3://a", "s3://b"]


def test_filters_hold_beside_a_job(two_jobs):
    assert listed("recurrences", "list", "--job", "job", "--user", "ann") == []
    assert listed("trials", "list", "--job", "job", "--phase", "deleted") == []
    assert len(listed("trials", "list", "--job", "job", "--phase", "running")) == 2


def test_every_list_takes_since(two_jobs):
    for name in ("jobs", "recurrences", "trials", "profiles", "arms"):
        assert listed(name, "list", "--since", "1h") != [] and listed(name, "list", "--since", "2999-01-01") == []


@pytest.mark.parametrize("name", ["[/red]", "[bold]digits", ":smile:", "a\tb", "训练"])
def test_a_name_is_shown_as_it_is(store, monkeypatch, name):
    store.open_recurrence(dataclasses.replace(SPEC, job_id=name), "run")
    monkeypatch.setenv("COLUMNS", "200")
    assert name.split("\t")[0] in run("jobs", "list")
    assert next(csv.DictReader(run("jobs", "list", "--format", "csv").splitlines()))["job_id"] == name


@pytest.mark.parametrize(
    "words",
    [
        ["jobs", "export", "job", "--output", "FILE/page"],
        ["report", "job", "--output", "FILE/page"],
        ["compile", "FILE"],
        ["demo", "--folder", "FILE"],
        ["run", "--root", "FILE", "-p", "job_id=a", "-p", "train_entry_point=a:b", "-p", "target_metric=0.9"]
        + ["-p", "batch_sizes=[8]", "-p", "default_batch_size=8"],
    ],
    ids=lambda words: words[0],
)
def test_a_file_or_folder_that_cannot_be_written_is_told_in_one_line(two_jobs, tmp_path, words, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("sys.argv", ["zeus-kfp", *(word.replace("FILE", str(tmp_path / "file")) for word in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1 and line.startswith(f"zeus-kfp: {tmp_path / 'file'}") and "can't be used: " in line


@pytest.mark.parametrize("words", [["jobs", "list"], ["doctor"], ["jobs", "list", "--format", "json"]])
def test_output_that_finds_no_room_is_told_in_one_line(store, words):
    command = [sys.executable, "-c", "from zeus_kfp.pipelines.cli import main; main()", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=os.environ, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "zeus-kfp: the output can't be used: No space left on device" in done.stderr


@pytest.mark.parametrize("name", ["jobs", "recurrences", "trials", "profiles", "arms"])
def test_a_list_of_a_job_that_is_not_there_is_an_error_and_no_empty_table(two_jobs, name):
    result = CliRunner().invoke(app, [name, "list", "--job", "nobody"])
    assert isinstance(result.exception, UnknownJobError) and result.stdout == ""


def test_a_list_of_a_run_that_is_not_there_is_an_error_too(two_jobs):
    result = CliRunner().invoke(app, ["trials", "list", "--job", "job", "--run", "nobody"])
    assert isinstance(result.exception, UnknownRecurrenceError)
