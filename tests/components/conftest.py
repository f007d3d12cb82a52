"""Trials under the supervisor: in this process, and in one of its own."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.components.supervised import PLAN, SUPERVISOR, Trained, usual_arguments
from zeus_kfp.components.train_with_profiling.supervisor import supervise


@pytest.fixture
def user_module(tmp_path):
    """Return a function that writes a module `user`, and returns the environment in which it is found."""

    def write(code, environ):
        (tmp_path / "user.py").write_text(textwrap.dedent(code))
        return os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | (environ or {}) | {"PYTHONPATH": str(tmp_path)}

    return write


@pytest.fixture
def train(user_module, tmp_path):
    """Return a function that supervises a trial in a module `user`."""

    def run(code="", plan=PLAN, environ=None, out="out", **arguments):
        folder = tmp_path / out
        folder.mkdir(exist_ok=True)
        usual = usual_arguments(folder) | {"grace_s": 0.5, "environ": user_module(code, environ)}
        return Trained(supervise(plan, **usual | arguments), folder)

    return run


@pytest.fixture
def start_supervisor(user_module, tmp_path):
    """Return a function that starts a supervisor of a module `user` in a process of its own, as a pod does."""

    def start(code, plan=PLAN, environ=None, **arguments):
        told = json.dumps(usual_arguments(tmp_path / "out") | arguments)
        return subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, plan.to_json(), told],
            env=user_module(code, environ),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    return start
