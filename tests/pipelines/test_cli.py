"""The command line: what it prints, what it changes, and how it fails."""

import pytest
from typer.testing import CliRunner

from zeus_kfp.pipelines.cli import app, main
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec

SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9)


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
