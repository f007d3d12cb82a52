"""Run a pipeline on this machine, under KFP's local runner, with no cluster at all."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kfp import local

from zeus_kfp.pipelines.client.arguments import checked_arguments, given
from zeus_kfp.pipelines.client.package import declared_by
from zeus_kfp.pipelines.recurring_training.pipeline import STORE_VARIABLE
from zeus_kfp.state_store import StateStore


def run_locally(
    pipeline: Any, *, store_url: str, root: str | Path, parameters: Mapping[str, Any] | None = None
) -> None:
    """Run one recurrence of a pipeline in subprocesses of this machine and return when it has ended.

    Args:
        pipeline: What recurring_training returned, or any other KFP pipeline.
        store_url: The store's URL, such as sqlite:////absolute/path/store.db.
        root: Folder for artifacts and the cache of preprocessed data; made if it is missing.
        parameters: The pipeline's parameters; of recurring training train_arguments and preprocess_arguments may be
            mappings.

    A run that is granted no recurrence, since another one of the job is running, trains nothing and ends like any
    other: its output says why. One that is interrupted leaves its recurrence open until its lease has passed, unless
    `zeus-kfp recurrences close` frees its slot.

    Raises:
        InvalidValueError: If it is no pipeline, a parameter is missing, unknown or out of its range, or the store's URL
            can't be one.
        StoreUnavailableError: If the store can't be reached.
        OSError: If the folder can't be made.
        RuntimeError: If the run fails, for example since no trial reached the target.
    """
    arguments = checked_arguments(declared_by(pipeline), given(parameters))
    root = Path(root).resolve()
    root.mkdir(parents=True, exist_ok=True)
    with StateStore(store_url) as store:
        # One that can't be used is told of here, once, and not by each of many steps.
        store.upgrade()
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(root),
        raise_on_error=True,
        enable_caching=True,
    )
    with _environment({STORE_VARIABLE: store_url}), warnings.catch_warnings():
        # The local runner warns of every image that is not called python; no image is used here.
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="kfp.local")
        pipeline(**arguments)


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
