"""The exit handler puts back the power limit that a killed pod left on its node."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.fake_zeusd import Shown, TcpDaemon, running
from zeus_kfp.components.close_recurrence.closing import close_and_report
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core import JobSpec, TrialState
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress

POD = """
import os
from zeus_kfp.zeus_core.power.zeusd_client import ZeusdAddress
ZeusdAddress.is_local = False
from zeus_kfp.zeus_core.power import open_limiter
open_limiter().set(150)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def lowered(fake_gpus, monkeypatch):
    """A node whose GPU a killed pod has left lowered, and whose zeusd runs."""
    monkeypatch.setattr(ZeusdAddress, "is_local", False)
    fake_gpus.set(SET="denied")
    server = TcpDaemon(("127.0.0.1", 0), fake_gpus, {0: Shown(0)})
    told = {
        "ZEUSD_HOST_PORT": f"127.0.0.1:{server.server_address[1]}",
        "ZEUS_KFP_NODE": "node-7",
        "ZEUS_KFP_TRIAL_KEY": json.dumps(["job", "run", 1]),
    }
    with running(server):
        subprocess.run([sys.executable, "-c", POD], env=fake_gpus.environ | told)
        assert fake_gpus.limits_w() == [150]
        yield server


def close(store_url, tmp_path, monkeypatch, **others):
    monkeypatch.setenv("ZEUS_KFP_STORE_URL", store_url)
    artifact = {name: SimpleNamespace(path=str(tmp_path / name)) for name in ("report", "summary", "metrics", "winner")}
    close_and_report("job", "run", **artifact | others)


def test_a_killed_pods_limit_is_put_back(lowered, fake_gpus, tmp_path, monkeypatch, capsys):
    close(f"sqlite:///{tmp_path}/store.db", tmp_path, monkeypatch)
    assert (
        "node node-7: stood at 150 W, left by a trial that was killed: its 250 W are put back"
        in capsys.readouterr().out
    )
    assert fake_gpus.limits_w() == [250]
    assert (tmp_path / "summary").read_text().startswith("No report")


def test_it_is_put_back_although_the_store_cannot_be_reached(lowered, fake_gpus, tmp_path, monkeypatch):
    with pytest.raises(Exception, match="ZEUS_KFP_STORE_URL|store|unable"):
        close(f"sqlite:////nonexistent/{os.getpid()}/store.db", tmp_path, monkeypatch)
    assert fake_gpus.limits_w() == [250]


def test_a_daemon_that_is_gone_does_not_keep_a_recurrence_open(lowered, fake_gpus, tmp_path, monkeypatch, capsys):
    lowered.refuses = "read only"
    close(f"sqlite:///{tmp_path}/store.db", tmp_path, monkeypatch)
    assert "on node node-7 may have been left at a power limit" in capsys.readouterr().out
    assert (tmp_path / "summary").read_text().startswith("No report")


def test_the_store_knows_where_a_killed_pod_was_and_which_limit_its_gpu_had(lowered, fake_gpus, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/store.db"
    with StateStore(url) as store:
        store.open_recurrence(JobSpec("job", (16,), 16, target_metric=0.9), "run")
        store.suggest("job", "run", 1)
    metrics = SimpleNamespace(path=str(tmp_path / "metrics"), log_metric=lambda *_: None)
    close(url, tmp_path, monkeypatch, metrics=metrics)
    with StateStore(url) as store:
        [trial] = store.trials("job")
    assert trial.state is TrialState.EXPIRED
    assert (trial.node, trial.power_limits_found_w) == ("node-7", {fake_gpus.uuid(): 250.0})


@pytest.mark.parametrize("key", ["{", "[1]", '["other", "run", 1]', '["job", "run", "x"]', "null"])
def test_a_trial_that_nobody_knows_does_not_keep_a_recurrence_open(
    lowered, fake_gpus, tmp_path, monkeypatch, capsys, key
):
    [path] = (tmp_path / "limits").iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"trial": key}))
    close(f"sqlite:///{tmp_path}/store.db", tmp_path, monkeypatch)
    assert f"{fake_gpus.uuid()} can't be noted in the store" in capsys.readouterr().out
    assert fake_gpus.limits_w() == [250]
