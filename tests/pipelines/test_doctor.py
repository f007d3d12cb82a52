"""What the doctor finds, on machines of every kind."""

import http.server
import json
import os
import socket
import threading
from contextlib import closing

import pytest
from typer.testing import CliRunner

from zeus_kfp.pipelines.cli import app
from zeus_kfp.pipelines.doctor import examine
from zeus_kfp.pipelines.finding import Verdict
from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.power.found import found_path
from zeus_kfp.zeus_core.power.note import boot_id


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


@pytest.fixture
def may_administer(tmp_path, found):
    (tmp_path / "proc" / "self" / "status").write_text("CapEff:\t000001ffffffffff\n")
    (tmp_path / "nvidiactl").write_text("")


def test_a_machine_with_every_right(found, fake_gpus, may_administer):
    findings = found()
    assert findings["NVIDIA driver"].found == "570.0.fake"
    assert findings["GPU 0"].found == "Fake GPU, power limit 250 W of 100 to 300 W"
    assert findings["power limits"].verdict is Verdict.GOOD
    assert findings["power limits"].found.startswith("would be set through nvml (CAP_SYS_ADMIN: yes; ")
    assert findings["energy"].found == "measured: nvml, on 1 x Fake GPU"
    assert fake_gpus.limits_w() == [250]
    assert not [finding for finding in findings.values() if finding.verdict is Verdict.BROKEN]


def test_a_pod_that_may_only_read(found, fake_gpus, tmp_path):
    (tmp_path / "nvidiactl").write_text("")
    finding = found()["power limits"]
    assert finding.verdict is Verdict.LACKING
    assert "would not be set: this process may not (CAP_SYS_ADMIN: no; /dev/nvidiactl belongs to user" in finding.found
    assert "ZEUSD_SOCK_PATH" in finding.advice


def test_the_capability_is_not_enough_on_a_device_of_someone_else(found, may_administer, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: os.stat("/").st_uid + 1000)
    assert "CAP_SYS_ADMIN: yes; /dev/nvidiactl belongs to user" in found()["power limits"].found
    assert found()["power limits"].verdict is Verdict.LACKING


def snapshot(folder):
    return (
        {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} if folder.exists() else None
    )


@pytest.mark.parametrize("left", [None, {"found_w": 280.0, "set_w": [100.0, 250.0]}])
def test_a_look_sets_writes_and_locks_nothing(found, fake_gpus, may_administer, tmp_path, monkeypatch, left):
    folder, locked = tmp_path / "limits", []
    if left:
        folder.mkdir()
        note = left | {"boot_id": boot_id(), "process_id": 1}
        found_path(folder, fake_gpus.uuid()).write_text(json.dumps(note))
    before = snapshot(folder)
    monkeypatch.setattr("fcntl.flock", lambda *arguments: locked.append(arguments))
    findings = found()
    assert (fake_gpus.set_count(), fake_gpus.limits_w(), locked, snapshot(folder)) == (0, [250], [], before)
    repair = findings.get("GPU 0: limit left by a killed trial")
    assert (repair is not None) is (left is not None)
    if repair:
        assert repair.found == "250 W stand, 280 W were found"
        assert repair.advice.endswith("nvidia-smi -i 0 -pl 280")


def test_a_limit_left_in_a_folder_that_others_may_write_to_is_seen(found, fake_gpus, may_administer, tmp_path):
    own = tmp_path / "volume" / f"user-{os.getuid()}"
    own.mkdir(parents=True)
    own.parent.chmod(0o777)
    note = {"found_w": 280.0, "set_w": [250.0], "boot_id": boot_id(), "process_id": 1}
    found_path(own, fake_gpus.uuid()).write_text(json.dumps(note))
    findings = found(ZEUS_KFP_LIMITS_FOLDER=str(own.parent))
    assert findings["GPU 0: limit left by a killed trial"].found == "250 W stand, 280 W were found"
    found_path(own, fake_gpus.uuid()).write_text(json.dumps(note | {"boot_id": "an earlier one"}))
    assert "GPU 0: limit left by a killed trial" not in found()


def test_without_a_place_for_the_limits_found_none_would_be_set(found, fake_gpus, may_administer, monkeypatch):
    def none():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.delenv("ZEUS_KFP_LIMITS_FOLDER")
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", none)
    finding = found()["power limits"]
    assert (finding.verdict, finding.advice) == (Verdict.LACKING, "name a folder in ZEUS_KFP_LIMITS_FOLDER")
    assert "could not be kept for a repair: No usable temporary directory found" in finding.found


def test_a_trial_that_sets_limits_now_is_seen_and_not_disturbed(found, fake_gpus, may_administer, tmp_path):
    (tmp_path / "proc" / "net").symlink_to("/proc/net/")
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        findings = found()
        assert "another trial sets the limit of GPU 0 right now" in findings["power limits"].found
        assert "GPU 0: limit left by a killed trial" not in findings
        assert fake_gpus.limits_w() == [150]


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"MIG": "on"}, "GPU 0 is divided (MIG)"),
        ({"LIMITS": "unsupported"}, "GPU 0 doesn't tell its power limits"),
    ],
)
def test_what_stands_in_the_way_of_a_limit_is_named(found, fake_gpus, may_administer, variables, why):
    fake_gpus.set(**variables)
    finding = found()["power limits"]
    assert (finding.verdict, why in finding.found) == (Verdict.LACKING, True)


def test_a_gpu_that_a_stranger_works_on_would_be_left_alone(found, fake_gpus, may_administer, adopted):
    stranger = adopted()
    fake_gpus.set(PROCESS=str(stranger))
    finding = found()["power limits"]
    assert finding.verdict is Verdict.LACKING
    assert f"process {stranger} works on GPU 0" in finding.found


@pytest.mark.parametrize("counter", ["unsupported", "stuck"])
def test_a_card_without_a_counter_that_counts(found, fake_gpus, counter):
    fake_gpus.set(ENERGY=counter)
    findings = found()
    assert findings["GPU 0: energy counter"].found == "none; its power is polled instead"
    assert findings["energy"].found.startswith("measured: nvml-polling")


def test_cards_of_two_models(found, fake_gpus):
    fake_gpus.set(GPUS="2", NAME_1="Other GPU")
    findings = found()
    assert (findings["GPU models"].verdict, findings["GPU models"].found) == (Verdict.BROKEN, "Fake GPU, Other GPU")


def test_a_list_of_gpus_that_ends_early(found, fake_gpus):
    fake_gpus.set(GPUS="2")
    finding = found(CUDA_VISIBLE_DEVICES="0,2,1")["CUDA_VISIBLE_DEVICES"]
    assert (finding.verdict, finding.found[:21]) == (Verdict.LACKING, "CUDA leaves out 2,1: ")
    assert "CUDA_VISIBLE_DEVICES" not in found(CUDA_VISIBLE_DEVICES="1,0")


def test_a_laptop_without_any_gpu(found, fake_gpus):
    fake_gpus.set(INIT="12")
    findings = found()
    assert findings["NVIDIA GPUs"].found == "NVML can't be opened: NVML Shared Library Not Found"
    assert findings["NVIDIA GPUs"].verdict is Verdict.LACKING
    assert findings["RAPL"].found == "there is no RAPL in /nonexistent"
    assert findings["energy"].found.startswith("only estimated: estimate, on ")
    assert "power limits" not in findings


@pytest.mark.parametrize(
    ("code", "cause", "advice"),
    [
        ("9", "Driver Not Loaded", "modprobe"),
        ("18", "version mismatch", "reboot"),
        ("4", "Permissions", "/dev/nvidiactl"),
    ],
)
def test_a_gpu_that_cannot_be_opened_is_no_laptop_without_one(found, fake_gpus, code, cause, advice):
    fake_gpus.set(INIT=code)
    finding = found()["NVIDIA GPUs"]
    assert (finding.verdict, cause in finding.found, advice in finding.advice) == (Verdict.BROKEN, True, True)


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


@pytest.mark.parametrize("folder", ["missing", "file"])
def test_a_store_whose_folder_is_not_there_cannot_be_made(found, tmp_path, folder):
    (tmp_path / "file").write_text("")
    finding = found(ZEUS_KFP_STORE_URL=f"sqlite:///{tmp_path}/{folder}/store.db")["store"]
    assert (finding.verdict, f"{folder} is no folder that" in finding.found) == (Verdict.BROKEN, True)


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


@pytest.mark.parametrize("endpoint", ["http://a b", "http://[", "http://127.0.0.1:99999", "no-such-host", " "])
def test_an_endpoint_that_is_no_address_does_not_answer(found, endpoint):
    finding = found(KF_PIPELINES_ENDPOINT=endpoint)["KFP"]
    assert (finding.verdict, "does not answer: " in finding.found) == (Verdict.BROKEN, True)


def test_an_endpoint_that_speaks_no_http_does_not_answer(found):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with server.accept()[0] as caller:
                caller.recv(1000)
                caller.sendall(b"220 smtp.example.com\r\n")

        threading.Thread(target=answer, daemon=True).start()
        finding = found(KF_PIPELINES_ENDPOINT=f"127.0.0.1:{server.getsockname()[1]}")["KFP"]
    assert (finding.verdict, "does not answer: 220 smtp" in finding.found) == (Verdict.BROKEN, True)


@pytest.mark.parametrize(
    ("option", "value"),
    [("STEP_W", "abc"), ("PROFILE_STEPS", "0"), ("LOWEST_W", "nan"), ("OBJECTIVE", "cheap"), ("WARMUP_STEPS", "1.5")],
)
def test_options_of_profiling_that_no_trial_takes_are_found(found, option, value):
    finding = found(**{f"ZEUS_KFP_POWER_{option}": value})["power profiling"]
    assert (finding.verdict, f"ZEUS_KFP_POWER_{option}='{value}'" in finding.found) == (Verdict.BROKEN, True)


def test_options_that_cannot_be_are_found(found):
    assert found(ZEUS_KFP_POWER_LIMITS="maybe")["power limits"].verdict is Verdict.BROKEN
    assert found(ZEUS_KFP_POWER_LIMITS="on", CUDA_VISIBLE_DEVICES="", ZEUS_KFP_CPU_CORE_POWER_W="x")[
        "energy"
    ].verdict is (Verdict.BROKEN)


def test_the_command_shows_it_and_fails_where_something_is_broken(found, fake_gpus):
    found()
    shown = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "100"})
    assert (shown.exit_code, "power limit 250 W of 100 to 300 W" in shown.output) == (0, True)
    fake_gpus.set(GPUS="2", NAME_1="Other GPU")
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


def test_what_is_to_be_typed_is_never_cut_off(found, tmp_path):
    folder = tmp_path / "a-folder-with-a-name-that-is-far-too-long-for-a-column-of-a-narrow-terminal"
    found(ZEUS_KFP_RAPL_FOLDER=str(folder))
    shown = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "60"}).output
    assert f"{folder}/intel-rapl:*/energy_uj" in "".join(shown.split())


def test_gpus_that_are_hidden_by_mistake_are_broken(found, fake_gpus):
    fake_gpus.set(GPUS="2")
    finding = found(CUDA_VISIBLE_DEVICES="cuda:0")["NVIDIA GPUs"]
    assert (finding.verdict, "this machine has 2 GPUs" in finding.advice) == (Verdict.BROKEN, True)


def test_numbers_that_may_mean_other_cards_are_broken(found, fake_gpus):
    fake_gpus.set(GPUS="2", NAME="Fast GPU", NAME_0="Slow GPU")
    findings = found(CUDA_VISIBLE_DEVICES="1")
    assert findings["GPU numbers"].verdict is Verdict.BROKEN
    assert "PCI_BUS_ID" in findings["GPU numbers"].advice
