"""What the guides say to type works."""

import re
import shlex
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from kfp import dsl
from nbclient import NotebookClient
from typer.testing import CliRunner

from zeus_kfp.pipelines import cli
from zeus_kfp.pipelines.client.arguments import checked_arguments
from zeus_kfp.pipelines.client.package import PipelinePackage
from zeus_kfp.pipelines.recurring_training.parameters import knob_names
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core import JobSpec

DOCS = Path(__file__).parents[3] / "docs"


def blocks(guide, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / guide).read_text(), re.DOTALL)


def commands(guide, *names):
    lines = "".join(blocks(guide, "sh")).replace("\\\n", " ").splitlines()
    names = names or ("schedule", "submit")
    return [shlex.split(line) for line in lines if line.startswith(tuple(f"zeus-kfp {name} " for name in names))]


@pytest.fixture
def ended_runs(server, monkeypatch, clock):
    """Runs end as soon as they were started, so that nothing waits for them."""
    create = server.books.create_run

    def ended(body):
        run = create(body)
        server.books.set_state(run["run_id"], "SUCCEEDED")
        return run

    monkeypatch.setattr(server.books, "create_run", ended)


def test_the_commands_of_the_cluster_guide_work_in_their_order(server, ended_runs, monkeypatch, capsys):
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("the guide's last command waits"))
    typed = commands("cluster.md")
    assert [words[1:3] for words in typed][:2] == [["schedule", "list"], ["schedule", "create"]]
    for words in typed:
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code, (words, capsys.readouterr().err)
    assert server.books.recurring_runs == {}
    (by_hand,) = server.books.runs.values()
    assert by_hand["service_account"] == "zeus-kfp-runner"


def test_the_python_of_the_cluster_guide_makes_the_same_schedule_as_its_command(server, monkeypatch):
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    (code,) = [block for block in blocks("cluster.md", "python") if "RecurringTrainingClient" in block]
    exec(code, {})
    monkeypatch.setattr(sys, "argv", [*commands("cluster.md")[1], "--or-update"])
    with pytest.raises(SystemExit):
        cli.main()
    assert len(server.books.recurring_runs) == 1


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def look_at(model: dsl.Input[dsl.Model]):
    print(model.uri)


def test_the_stages_of_the_knobs_guide_build_a_pipeline():
    (code,) = blocks("knobs.md", "python")
    # As components, and as a function that calls one.
    steps = {"evaluate": look_at, "deploy": lambda model: look_at(model=model), "index": look_at}
    names = steps | {"train": "trainer:train"}
    exec(code, names)
    assert names["stages"]["deploy"].every == 3
    assert "stage-turn" in names["pipeline"].pipeline_spec.components["comp-condition-2"].dag.tasks


def test_the_store_commands_of_the_cluster_guide_work_in_their_order(monkeypatch, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("ZEUS_KFP_STORE_URL", url)
    monkeypatch.chdir(tmp_path)
    with StateStore(url) as store:
        store.open_recurrence(JobSpec("digits", (8, 16), 16, target_metric=0.9), "run")
        typed = commands("cluster.md", "jobs", "report")
        assert [words[2] for words in typed] == ["signal-drift", "drifts", "prunable", "digits"]
        for words in typed:
            assert CliRunner().invoke(cli.app, words[1:]).exit_code == 0
        assert [(drift.reason, drift.value) for drift in store.drifts("digits")] == [
            ("accuracy in production fell", 0.91)
        ]
    assert (tmp_path / "report.html").is_file()


def test_the_example_of_the_knobs_guide_can_be_scheduled(server, monkeypatch, tmp_path):
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    monkeypatch.chdir(tmp_path)
    (knobs,) = blocks("knobs.md", "yaml")
    Path("vision.yaml").write_text(knobs)
    (words,) = commands("knobs.md")
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit):
        cli.main()
    (held,) = server.books.recurring_runs.values()
    assert held["runtime_config"]["parameters"] == yaml.safe_load(knobs)


def test_the_knobs_guide_tells_of_every_knob_with_its_default():
    text = (DOCS / "knobs.md").read_text()
    told = set(re.findall(r"`(\w+)(?:=[^`]*)?`", text))
    assert set(knob_names()) <= told
    declared = PipelinePackage.of("recurring_training").declared
    for name, default in re.findall(r"^\| `(\w+)` \| ([\d.]+|zeus|none) \|", text, re.MULTILINE):
        assert str(declared[name]["defaultValue"]).removesuffix(".0") == default.removesuffix(".0"), name
    checked_arguments(declared, yaml.safe_load(blocks("knobs.md", "yaml")[0]))


def test_the_notebook_makes_its_schedule_where_there_is_a_cluster(server, tmp_path, monkeypatch):
    notebook = nbformat.read(DOCS.parent / "notebooks" / "recurring.ipynb", as_version=4)
    # All but the recurrence on this machine, which needs no cluster and is run with the other notebooks.
    notebook.cells = [c for c in notebook.cells if c.cell_type == "code" and "run_locally(" not in c.source]
    notebook.cells[
        -3
    ].source = f"from pathlib import Path\nfolder = Path({str(tmp_path)!r})\n{notebook.cells[-3].source}"
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    monkeypatch.setenv("HOME", str(tmp_path))
    NotebookClient(notebook, timeout=120).execute()
    (held,) = server.books.recurring_runs.values()
    assert (held["display_name"], held["no_catchup"]) == ("digits-nightly", True)
    assert held["runtime_config"]["parameters"] == {"max_retries": 2}
    assert "digits-nightly (created): At 03:00, every day (UTC)" in str(notebook.cells[-1].outputs)
