"""Run a pipeline on this machine, under KFP's local runner, with no cluster at all."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp import local

from zeus_kfp.pipelines.recurring_training.parameters import check_parameters
from zeus_kfp.pipelines.recurring_training.pipeline import STORE_VARIABLE


def run_locally(
    pipeline: Any, *, store_url: str, root: str | Path, parameters: Mapping[str, Any] | None = None
) -> None:
    """Run one recurrence of a pipeline in subprocesses of this machine and return when it has ended.

    Args:
        pipeline: What recurring_training returned, or any other KFP pipeline.
        store_url: The store's URL, such as sqlite:////absolute/path/store.db.
        root: Folder for artifacts and the cache of preprocessed data; made if it is missing.
        parameters: The pipeline's parameters.

    A run that is granted no recurrence, since another one of the job is running, trains nothing and ends like any
    other: its output says why.

    Raises:
        InvalidValueError: If a parameter is out of its range.
        RuntimeError: If the run fails, for example since no trial reached the target.
    """
    check_parameters(parameters or {})
    root = Path(root).resolve()
    root.mkdir(parents=True, exist_ok=True)
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(root),
        raise_on_error=True,
        enable_caching=True,
    )
    with _environment({STORE_VARIABLE: store_url}), warnings.catch_warnings():
        # The local runner warns of every image that is not called python; no image is used here.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="kfp.local")
        pipeline(**(parameters or {}))


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
