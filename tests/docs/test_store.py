"""What docs/store.md says to type and to write works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeus_kfp.pipelines.cli import app
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core import JobSpec

GUIDE = (Path(__file__).parents[2] / "docs" / "store.md").read_text()


@pytest.fixture
def url(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    monkeypatch.setenv("ZEUS_KFP_STORE_URL", url)
    monkeypatch.chdir(tmp_path)
    with StateStore(url) as store:
        store.open_recurrence(JobSpec("digits", (8, 16), 16, target_metric=0.9), "run")
        store.suggest("digits", "run", 1)
    return url


def test_every_command_of_the_guide_runs(url, tmp_path):
    (block,) = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(commands) >= 8
    for command in commands:
        result = CliRunner().invoke(app, command[1:])
        assert result.exit_code == 0, (command, result.output)
    assert '"digits"' in (tmp_path / "digits.json").read_text()


def test_the_guides_python_reads_the_store(url, tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    code = block.replace("sqlite:////tmp/zeus-kfp-store-example.db", url)
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines()[0] == "digits 1 16 issued None" and len(printed.splitlines()) == 3


def test_every_test_that_the_guide_names_is_there():
    folder = Path(__file__).parents[1]
    for name in re.findall(r"`(test_\w+\.py)`", GUIDE):
        assert list(folder.rglob(name)), name
