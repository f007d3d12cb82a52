"""The exit handler puts back the power limit that a killed pod left on its node."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.fake_zeusd import Shown, TcpDaemon, running
from zeus_kfp.components.close_recurrence.closing import close_and_report
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
    told = {"ZEUSD_HOST_PORT": f"127.0.0.1:{server.server_address[1]}", "ZEUS_KFP_NODE": "node-7"}
    with running(server):
        subprocess.run([sys.executable, "-c", POD], env=fake_gpus.environ | told)
        assert fake_gpus.limits_w() == [150]
        yield server


def close(store_url, tmp_path, monkeypatch):
    monkeypatch.setenv("ZEUS_KFP_STORE_URL", store_url)
    artifact = {name: SimpleNamespace(path=str(tmp_path / name)) for name in ("report", "summary", "metrics", "winner")}
    close_and_report("job", "run", **artifact)


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
