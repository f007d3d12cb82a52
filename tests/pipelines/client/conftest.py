"""A KFP server on the loopback interface, a clock that tests move, and the client between them."""

import os
from datetime import UTC, datetime, timedelta

import kfp
import pytest
from fake_kfp import ApiDescription, Books, FakeKfp
from kfp import compiler

from zeus_kfp.pipelines.client import RecurringTrainingClient
from zeus_kfp.pipelines.recurring_training import recurring_training

SWAGGER = "kfp-api/kfp_api_single_file.swagger.json"


class Clock:
    """A time that only tests and their sleeps move."""

    def __init__(self):
        self.now = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
        self.slept = []

    def __call__(self):
        return self.now

    def monotonic(self):
        return self.now.timestamp()

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)


@pytest.fixture(autouse=True)
def no_cluster_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(tmp_path / "context.json"))
    for name in [n for n in os.environ if n.startswith(("KF_PIPELINES", "ZEUS_KFP_")) and n != "ZEUS_KFP_SHARED_DATA"]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def description(shared_data):
    """The API's published description, or None where it is not at hand."""
    file = shared_data(SWAGGER, is_needed=False)
    return ApiDescription(file) if file else None


@pytest.fixture
def published(shared_data, description):
    """The API's published description, for tests that are of it."""
    shared_data(SWAGGER)
    return description


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server(description, clock):
    """A server whose every request and response was as the API's description has it."""
    with FakeKfp(Books(clock), description) as running:
        yield running
    assert running.errors == []


@pytest.fixture
def client(server, clock):
    return RecurringTrainingClient(host=server.url, clock=clock, monotonic=clock.monotonic, sleep=clock.sleep)


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    path = tmp_path_factory.mktemp("yaml") / "pipeline.yaml"
    compiler.Compiler().compile(recurring_training(train="trainer:train", job_id="digits", max_epochs=7), str(path))
    return path


@pytest.fixture
def knobs():
    return {"batch_sizes": [16, 32, 64], "default_batch_size": 32, "target_metric": 0.9}
