"""Real training processes on GPUs of the fake NVML, under the supervisor: the limit found is what stands at the end."""

import os
import signal
import subprocess
import sys

import pytest

from tests.components.supervised import plan_with
from tests.fake_zeusd import Shown, TcpDaemon, running
from tests.virtual_gpu import VIRTUAL_GPU
from zeus_kfp.components.train_with_profiling.child_process import ChildProcess
from zeus_kfp.components.train_with_profiling.termination import Terminated
from zeus_kfp.zeus_core import processes
from zeus_kfp.zeus_core.profile import read_profiles
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialState

TRAINING = (
    VIRTUAL_GPU
    + """
import os, signal, sys, time

def train(trial):
    follow_the_gpu(trial)
    for epoch in trial.epochs():
        for step in trial.train(range(400)):
            work(0.1)
            if epoch == 0 and step == STEP:
                {code}
        trial.report_metric(epoch / 2)
"""
)


def training(code, step=120):
    """Return training that does something in the middle of profiling."""
    return TRAINING.replace("{code}", code).replace("STEP", str(step))


@pytest.fixture
def train(train, fake_gpus):
    """Supervise a trial that does something in the middle of profiling."""

    def run(code, step=120, **arguments):
        fake_gpus.set(HIGHEST_MW="250000")
        environ = fake_gpus.environ | {"ZEUS_KFP_POWER_PROFILE_STEPS": "40"}
        return train(training(code, step), environ=environ, **arguments).outcome

    return run


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("pass", TrialState.REACHED),
        ("raise RuntimeError('x')", TrialState.FAILED),
        ("sys.exit(3)", TrialState.FAILED),
        ("os._exit(3)", TrialState.FAILED),
        ("os.kill(os.getpid(), signal.SIGKILL)", TrialState.OOM),
        ("os.kill(os.getpid(), signal.SIGTERM)", TrialState.FAILED),
        ("os.kill(os.getpid(), signal.SIGSEGV)", TrialState.FAILED),
        ("os.fork() and os.kill(os.getpid(), signal.SIGKILL) or time.sleep(60)", TrialState.OOM),
    ],
)
def test_however_training_ends_the_limit_found_stands(fake_gpus, train, code, state):
    assert train(code).state is state
    assert fake_gpus.set_count() > 1
    assert fake_gpus.limits_w() == [250]


@pytest.mark.parametrize("step", [0, 9, 10, 11, 49, 50, 51, 173, 349, 350, 399])
def test_a_kill_at_any_moment_of_profiling_leaves_nothing_behind(fake_gpus, train, step):
    train("os.kill(os.getpid(), signal.SIGKILL)", step=step)
    assert fake_gpus.limits_w() == [250]


def test_a_trial_that_outlives_its_time_is_repaired_too(fake_gpus, train):
    signals = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    outcome = train(signals, plan=plan_with(max_trial_time_s=3.0))
    assert outcome.state is TrialState.NOT_REACHED
    assert fake_gpus.limits_w() == [250]


def test_a_supervisor_that_must_end_repairs_before_it_does(fake_gpus, start_supervisor):
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    with start_supervisor(training(deaf), environ=fake_gpus.environ) as process:
        assert any("deaf" in line for line in process.stdout)
        assert fake_gpus.limits_w() != [250]
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    assert fake_gpus.limits_w() == [250]


ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture
def signalled(monkeypatch):
    """Ask this process to end just before or after a method is called; return what its own handler got."""
    got = []
    handlers = {number: signal.signal(number, lambda n, _: got.append(n)) for number in ENDING}

    def at(owner, name, *numbers, is_after=False):
        original = getattr(owner, name)

        def around(self, *args, **options):
            result = original(self, *args, **options) if is_after else None
            for number in numbers:
                signal.raise_signal(number)
            return result if is_after else original(self, *args, **options)

        monkeypatch.setattr(owner, name, around)
        return got

    yield at
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_while_training_is_buried_does_not_prevent_the_repair(fake_gpus, train, signalled, number):
    got = signalled(ChildProcess, "close", number, *ENDING)
    with pytest.raises(Terminated, match=signal.Signals(number).name):
        train("os.kill(os.getpid(), signal.SIGKILL)")
    assert fake_gpus.set_count() > 1
    assert fake_gpus.limits_w() == [250]
    assert got == [number]


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_while_training_starts_leaves_no_process(train, signalled, tmp_path, number):
    got = signalled(subprocess.Popen, "__init__", number, is_after=True)
    before = set(processes.running())
    with pytest.raises(Terminated, match=signal.Signals(number).name):
        train("time.sleep(600)")
    assert set(processes.descendants(os.getpid(), processes.running())) <= before
    assert got == [number]


def test_the_profile_is_an_artifact(fake_gpus, train, tmp_path):
    train("pass")
    rows = read_profiles(tmp_path / "out" / "profile.json")
    assert [row.power_limit_w for row in rows] == [250, 225, 200, 175, 150, 125, 100]
    assert [row.average_power_w for row in rows] == pytest.approx([row.power_limit_w for row in rows], rel=1e-3)


@pytest.mark.parametrize(
    ("code", "state"), [("pass", TrialState.REACHED), ("os.kill(os.getpid(), signal.SIGKILL)", TrialState.OOM)]
)
def test_the_outcome_tells_node_and_limits_found_of_each_gpu(fake_gpus, train, monkeypatch, code, state):
    monkeypatch.setenv("ZEUS_KFP_NODE", "node-7")
    fake_gpus.set(GPUS="2", LIMIT_MW_1="240000")
    outcome = train(code)
    assert (outcome.state, outcome.node) == (state, "node-7")
    assert outcome.power_limits_found_w == {fake_gpus.uuid(0): 250, fake_gpus.uuid(1): 240}
    assert TrialOutcome.from_json(outcome.to_json()) == outcome
    assert fake_gpus.limits_w() == [250, 240]


def test_what_a_trial_found_is_what_stood_after_the_repair_before_it(fake_gpus, train):
    script = "from zeus_kfp.zeus_core.power import open_limiter as o; import os; o().set(120); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script], env=fake_gpus.environ)
    assert fake_gpus.limits_w() == [120]
    outcome = train("os._exit(0)", step=0)
    assert outcome.power_limits_found_w == {fake_gpus.uuid(): 250}


def test_a_limit_that_is_left_changed_is_said(fake_gpus, train, capfd):
    # Someone else sets another limit as soon as training has put back what it found.
    someone = "import pynvml as n; n.nvmlDeviceSetPowerManagementLimit(n.nvmlDeviceGetHandleByIndex(0), 220000)"
    train(f"import atexit; atexit.register(exec, {someone!r}, dict()); import pynvml; pynvml.nvmlInit()", step=399)
    assert f"{fake_gpus.uuid()} on " in (said := capfd.readouterr().out)
    assert "had a power limit of 250 W before this trial, and has 220 W after it" in said


# Training that tells nothing any more is measured from outside.
@pytest.mark.parametrize("code", ["pass", "os._exit(3)"])
def test_both_meters_energies_are_in_the_outcome(train, code):
    outcome = train(code)
    assert (outcome.energy_source, outcome.second_energy_source) == ("nvml", "nvml-polling")
    assert outcome.second_energy_j is not None and outcome.energy_j > 0


def test_a_pod_that_is_killed_whole_is_repaired_by_the_next_trial(fake_gpus, train, tmp_path):
    script = "from zeus_kfp.zeus_core.power import open_limiter as o; import os; o().set(120); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", script], env=fake_gpus.environ).returncode == -signal.SIGKILL
    assert fake_gpus.limits_w() == [120]
    assert train("pass").state is TrialState.REACHED
    assert fake_gpus.limits_w() == [250]
    assert os.listdir(tmp_path / "limits")


def test_limits_found_outlive_the_pod_beside_its_checkpoints(fake_gpus, train, start_supervisor, tmp_path, monkeypatch):
    monkeypatch.delenv("ZEUS_KFP_LIMITS_FOLDER")
    volume = tmp_path / "volume"
    kill_all = "os.kill(os.getppid(), signal.SIGKILL); os.kill(os.getpid(), signal.SIGKILL)"
    environ = fake_gpus.environ | {"TMPDIR": str(tmp_path)}
    with start_supervisor(training(kill_all), environ=environ, checkpoint_dir=str(volume)) as pod:
        pod.communicate()
    assert pod.returncode == -signal.SIGKILL
    assert fake_gpus.limits_w() != [250]
    outcome = train("pass", checkpoint_dir=str(volume))
    assert outcome.power_limits_found_w == {fake_gpus.uuid(): 250}
    assert fake_gpus.limits_w() == [250]


@pytest.fixture
def zeusd(fake_gpus, monkeypatch):
    """A daemon at a TCP port that may set limits, in a pod that may not; it numbers the pod's GPU 4."""
    fake_gpus.set(SET="denied")
    server = TcpDaemon(("127.0.0.1", 0), fake_gpus, {3: Shown(energy_mj=1), 4: Shown(0)})
    monkeypatch.setenv("ZEUSD_HOST_PORT", f"127.0.0.1:{server.server_address[1]}")
    with running(server):
        yield server


def test_a_pod_profiles_through_zeusd_and_leaves_what_it_found(fake_gpus, zeusd, train, tmp_path, monkeypatch):
    monkeypatch.setenv("ZEUS_KFP_POWER_OBJECTIVE", "energy")
    outcome = train("pass")
    assert (outcome.state, outcome.power_limiter) == (TrialState.REACHED, "zeusd")
    rows = read_profiles(tmp_path / "out" / "profile.json")
    assert [row.power_limit_w for row in rows] == [250, 225, 200, 175, 150, 125, 100]
    assert [row.average_power_w for row in rows] == pytest.approx([row.power_limit_w for row in rows], rel=1e-3)
    # P / R with R ~ cbrt(P - 80) is least at 120 W.
    assert outcome.power_limit_w == 125
    asked = [(query["gpu_ids"], int(query["power_limit_mw"]) / 1000) for _, query in zeusd.asked]
    # First what is found is set to itself; at the end the one chosen, and then what was found.
    assert asked[0] == ("4", 250)
    assert asked[-2:] == [("4", outcome.power_limit_w), ("4", 250)]
    assert fake_gpus.limits_w() == [250]


def test_a_pod_whose_training_is_killed_is_repaired_through_zeusd(fake_gpus, zeusd, train):
    assert train("os.kill(os.getpid(), signal.SIGKILL)").state is TrialState.OOM
    assert {query["gpu_ids"] for _, query in zeusd.asked} == {"4"}
    assert fake_gpus.set_count() > 1
    assert fake_gpus.limits_w() == [250]


def test_a_zeusd_that_refuses_leaves_a_trial_that_observes(fake_gpus, zeusd, train):
    zeusd.refuses = "read only"
    outcome = train("pass")
    assert (outcome.state, outcome.power_limiter, outcome.power_limit_w) == (TrialState.REACHED, "observe only", None)
    assert fake_gpus.limits_w() == [250]
