"""Every notebook runs from top to bottom."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LAST_OUTPUTS = {
    "policies": " bytes\n",
    "quickstart": " bytes\n",
    "recurring": "{'cron': '0 0 3 * * *', 'parameters': {'max_retries': 2}, 'max_concurrency': 1}\n",
}


def test_every_notebook_is_run():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(LAST_OUTPUTS)


@pytest.mark.parametrize("name", LAST_OUTPUTS)
def test_notebook_runs_and_shows_its_last_output(name, tmp_path, monkeypatch):
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT", raising=False)
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert notebook.cells[-1].outputs[0]["text"].endswith(LAST_OUTPUTS[name])
