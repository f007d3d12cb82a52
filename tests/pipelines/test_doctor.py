"""What the doctor finds, on machines of every kind."""

import http.server
import threading

import pytest
from typer.testing import CliRunner

from zeus_kfp.pipelines.cli import app
from zeus_kfp.pipelines.doctor import Verdict, examine


@pytest.fixture
def found(fake_gpus, tmp_path, monkeypatch):
    """Return what the doctor finds of each subject."""
    for name in ("ZEUS_KFP_STORE_URL", "KF_PIPELINES_ENDPOINT", "ZEUSD_SOCK_PATH", "ZEUSD_HOST_PORT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "status").write_text("Name:\tpython\nCapEff:\t00000000a80425fb\n")

    def look(**environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return {finding.subject: finding for finding in examine(proc=tmp_path / "proc", dev=tmp_path)}

    return look


def test_a_machine_with_every_right(found, fake_gpus):
    findings = found()
    assert findings["NVIDIA driver"].found == "570.0.fake"
    assert findings["GPU 0"].found == "Fake GPU, power limit 250 W of 100 to 300 W"
    assert findings["power limits"].found == "can be set, through nvml"
    assert findings["energy"].found == "measured: nvml, on 1 x Fake GPU"
    assert fake_gpus.limits_w() == [250]
    assert not [finding for finding in findings.values() if finding.verdict is Verdict.BROKEN]


def test_a_pod_that_may_only_read(found, fake_gpus, tmp_path):
    (tmp_path / "nvidiactl").write_text("")
    fake_gpus.set(SET="denied")
    finding = found()["power limits"]
    assert finding.verdict is Verdict.LACKING
    assert "Insufficient Permissions" in finding.found
    assert "CAP_SYS_ADMIN: no; /dev/nvidiactl belongs to user" in finding.found
    assert "ZEUSD_SOCK_PATH" in finding.advice


def test_the_capability_is_seen(found, fake_gpus, tmp_path):
    fake_gpus.set(SET="denied")
    (tmp_path / "proc" / "self" / "status").write_text("CapEff:\t000001ffffffffff\n")
    assert "CAP_SYS_ADMIN: yes; there is no /dev/nvidiactl" in found()["power limits"].found


def test_a_card_without_a_counter(found, fake_gpus):
    fake_gpus.set(ENERGY="unsupported")
    findings = found()
    assert findings["GPU 0: energy counter"].found == "none; its power is polled instead"
    assert findings["energy"].found.startswith("measured: nvml-polling")


def test_cards_of_two_models(found, fake_gpus):
    fake_gpus.set(GPUS="2", NAME_1="Other GPU")
    findings = found()
    assert (findings["GPU models"].verdict, findings["GPU models"].found) == (Verdict.BROKEN, "Fake GPU, Other GPU")


def test_a_laptop_without_any_gpu(found, fake_gpus):
    fake_gpus.set(GPUS=None)
    findings = found()
    assert findings["NVIDIA GPUs"].found == "NVML can't be opened: Driver Not Loaded"
    assert findings["RAPL"].found == "there is no RAPL in /nonexistent"
    assert findings["energy"].found.startswith("only estimated: estimate, on ")
    assert "power limits" not in findings


def test_a_daemon_that_does_not_answer(found, tmp_path):
    finding = found(ZEUSD_SOCK_PATH=str(tmp_path / "none"))["zeusd"]
    assert (finding.verdict, "can't be asked" in finding.found) == (Verdict.BROKEN, True)


@pytest.mark.parametrize("address", ["nowhere", "node:port"])
def test_an_address_of_a_daemon_that_is_none(found, address):
    assert "must be like node-7:4938" in found(ZEUSD_HOST_PORT=address)["zeusd"].found


def test_a_store_is_looked_at_and_not_made(found, tmp_path):
    path = tmp_path / "store.db"
    assert found(ZEUS_KFP_STORE_URL=f"sqlite:///{path}")["store"].found == f"{path} is made when it is first used"
    assert not path.exists()
    path.write_text("this is no database, but a text that is long enough to be taken for one" * 100)
    assert found()["store"].verdict is Verdict.BROKEN


def test_a_store_without_a_sensible_url(found):
    finding = found(ZEUS_KFP_STORE_URL="mysql://user:secret@host/db")["store"]
    assert finding.verdict is Verdict.BROKEN
    assert "secret" not in finding.found


def test_an_endpoint_that_answers_and_one_that_does_not(found):
    class Endpoint(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200 if self.path == "/apis/v2beta1/healthz" else 404)
            self.end_headers()

    with http.server.HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        assert found(KF_PIPELINES_ENDPOINT=address)["KFP"].found == f"http://{address} answers with HTTP 200"
        server.shutdown()
    assert found()["KFP"].verdict is Verdict.BROKEN


def test_options_that_cannot_be_are_found(found):
    assert found(ZEUS_KFP_POWER_LIMITS="maybe")["power limits"].verdict is Verdict.BROKEN
    assert found(ZEUS_KFP_POWER_LIMITS="on", CUDA_VISIBLE_DEVICES="", ZEUS_KFP_CPU_CORE_POWER_W="x")[
        "energy"
    ].verdict is (Verdict.BROKEN)


def test_the_command_shows_it_and_fails_where_something_is_broken(found, fake_gpus):
    found()
    shown = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "100"})
    assert (shown.exit_code, "can be set, through nvml" in shown.output) == (0, True)
    fake_gpus.set(GPUS="2", NAME_1="Other GPU")
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


def test_numbers_that_may_mean_other_cards_are_broken(found, fake_gpus):
    fake_gpus.set(GPUS="2", NAME="Fast GPU", NAME_0="Slow GPU")
    findings = found(CUDA_VISIBLE_DEVICES="1")
    assert findings["GPU numbers"].verdict is Verdict.BROKEN
    assert "PCI_BUS_ID" in findings["GPU numbers"].advice
