"""The demonstration says what it lacks, and leaves no slot taken."""

import re

import pytest
from rich.console import Console

from zeus_kfp.pipelines.demo import run
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec
from zeus_kfp.zeus_core.errors import InvalidValueError, JobInUseError


@pytest.fixture
def left_behind(tmp_path):
    """Return a store in which a demonstration that was killed left its recurrence open."""
    with StateStore(f"sqlite:///{tmp_path / 'store.db'}") as store:
        store.open_recurrence(JobSpec.from_parameters(**run.JOB), "killed")
        yield store


def test_one_that_was_killed_is_named_at_the_first_refusal(left_behind, tmp_path):
    said = re.escape(f"ZEUS_KFP_STORE_URL=sqlite:///{tmp_path / 'store.db'} zeus-kfp recurrences close digits killed")
    with pytest.raises(JobInUseError, match=said):
        run.run_demo(tmp_path, 12, Console(quiet=True))
    assert len(list((tmp_path / "logs").iterdir())) == 1
    assert [one.run_id for one in left_behind.recurrences("digits")] == ["killed"]


def test_an_interrupt_frees_the_slot(left_behind, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_locally", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run_demo(tmp_path, 12, Console(quiet=True))
    assert left_behind.recurrence("digits", "killed").state is RecurrenceState.NOT_REACHED


def test_what_is_not_installed_is_told_before_anything_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "find_spec", lambda name: None)
    with pytest.raises(InvalidValueError, match=r"sklearn and torch, which is not installed: install the extra `demo`"):
        run.run_demo(tmp_path / "demo", 1, Console(quiet=True))
    assert not (tmp_path / "demo").exists()
