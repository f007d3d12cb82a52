"""Several real processes that train together, over gloo."""

import json
import math
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.fleet import Hardware, joined, parted
from zeus_kfp.zeus_core.training.group import SoleProcess, open_group, own_gpus
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.summary import Ending, Summary

EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
TOGETHER = """
import atexit, ctypes, json, os, sys
import pynvml
from torch import distributed
from zeus_kfp.zeus_core.training import Trial

distributed.init_process_group("gloo")
atexit.register(distributed.destroy_process_group)  # else gloo's threads may abort a process that ends
rank = distributed.get_rank()
fake = ctypes.CDLL("libnvidia-ml.so.1")
fake.fake_nvml_work.argtypes, fake.fake_nvml_work.restype = [ctypes.c_double], ctypes.c_double
pynvml.nvmlInit()
trial = Trial.from_environment()
trial._logbook._instrument._clock = lambda: fake.fake_nvml_work(0.0) + 5.0 * rank
limits = []
for epoch in trial.epochs():
    for _ in trial.train(range(400)):
        distributed.barrier()
        limits.append([pynvml.nvmlDeviceGetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(i)) / 1000
                       for i in range(3)])
        distributed.barrier()
        if rank == 0:
            fake.fake_nvml_work(0.1)
    for _ in trial.eval(range(3 if rank == 0 else 0)):
        pass
    if rank == 0:
        trial.report_metric(epoch / 2)
trial.close()
with open(sys.argv[1] + f"/rank{rank}.json", "w") as file:
    json.dump({"limits": limits, "epochs": trial.epoch, "reached": trial.reached}, file)
"""
REDUCE = """
import atexit, json, math, sys
from torch import distributed
from zeus_kfp.zeus_core.training.fleet import Hardware, joined, parted
from zeus_kfp.zeus_core.training.group import open_group
from zeus_kfp.zeus_core.training.instrument import Spent
distributed.init_process_group("gloo")
atexit.register(distributed.destroy_process_group)  # else gloo's threads may abort a process that ends
group, rank = open_group(), distributed.get_rank()
group.connect()
total = group.total(Spent(100.0, 1.0 + rank))
group.measures = True
results = [group.agree(7.0 + rank), total.energy_j, total.time_s, group.total(Spent(100.0, 1.0)).energy_j]
results.append(group.total(Spent(None if rank else 1.0, 1.0)).energy_j)
group.disconnect()
# In one piece, so that the lines of two processes don't mix.
sys.stdout.write(json.dumps(results + [group.agree(5.0 + rank)]) + "\\n")
"""
FAIL = """
import sys
from torch import distributed
from zeus_kfp.zeus_core.training import Trial
distributed.init_process_group("gloo")
trial = Trial.from_environment()
for epoch in trial.epochs():
    trial.report_metric(0.5)
    if distributed.get_rank() == 0:
        raise RuntimeError("a bug of the user's")
"""


NODES = """
import atexit, ctypes, json, os, sys
own = os.environ.get("OWN_GPUS", "").split()
if own:
    os.environ["CUDA_VISIBLE_DEVICES"] = own[int(os.environ["LOCAL_RANK"])]
from torch import distributed
from zeus_kfp.zeus_core.training import Trial

distributed.init_process_group("gloo")
atexit.register(distributed.destroy_process_group)  # else gloo's threads may abort a process that ends
rank = distributed.get_rank()
fake = ctypes.CDLL("libnvidia-ml.so.1")
fake.fake_nvml_work.argtypes, fake.fake_nvml_work.restype = [ctypes.c_double], ctypes.c_double
trial = Trial.from_environment()
trial._instrument._clock = lambda: fake.fake_nvml_work(0.0)
for epoch in trial.epochs():
    for _ in trial.train(range(400)):
        distributed.barrier()
        if rank == 0:
            fake.fake_nvml_work(0.1)
        distributed.barrier()
    for _ in trial.eval(range(2 if rank == 0 else 0)):
        fake.fake_nvml_work(1.0)
    trial.report_metric(0.0)
    if epoch == 1:
        break
trial.close()
"""


def torchrun(arguments, environ):
    done = subprocess.run([*TORCHRUN, *arguments], env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def assignment(tmp_path):
    """An assignment in a file, for processes of their own."""
    made = local_assignment(
        batch_size=64,
        target_metric=0.95,
        higher_is_better=True,
        max_epochs=20,
        learning_rate_factor=1.0,
        eta_knob=1.0,
        cost_threshold=None,
        data_path="",
        arguments={},
        directory=tmp_path,
    )
    (tmp_path / "trial.json").write_text(made.to_json())
    return made


def test_the_example_trains_with_two_processes_and_writes_once(assignment, tmp_path):
    torchrun([str(EXAMPLE)], os.environ | {"ZEUS_KFP_TRIAL": str(tmp_path / "trial.json")})
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    told = Summary.read(tmp_path / "summary.json")
    assert epochs == list(range(1, told.epochs + 1))
    assert (told.ending, told.reason) == (Ending.ENDED, "target reached")
    assert told.metric >= 0.95
    assert Path(assignment.model_path).stat().st_size > 0
    [row] = told.profiles
    assert row.throughput_samples_per_s == pytest.approx(2048 * told.epochs / told.time_s, rel=0.9)


def test_all_processes_follow_the_leaders_limit_at_the_same_step(fake_gpus, assignment, tmp_path):
    fake_gpus.set(GPUS="3")
    environ = fake_gpus.environ | {"ZEUS_KFP_TRIAL": str(tmp_path / "trial.json")}
    said = torchrun(["--no-python", sys.executable, "-c", TOGETHER, str(tmp_path)], environ)
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first["epochs"] == 2
    limits = [250] * 50 + [225] * 50 + [200] * 50 + [175] * 50 + [150] * 50 + [125] * 50 + [100] * 50
    # The third GPU is no process's.
    assert first["limits"] == [[limit, limit, 250] for limit in limits] + [[125, 125, 250]] * 850
    assert said.count("profiling 7 power limits") == 1
    assert fake_gpus.limits_w() == [250, 250, 250]
    told = Summary.read(tmp_path / "summary.json")
    rows = [row for row in told.profiles if row.phase == "train"]
    assert [row.power_limit_w for row in rows] == [250, 225, 200, 175, 150, 125, 100]
    # Both GPUs count, and each once; all samples of both processes count.
    assert [row.average_power_w for row in rows] == pytest.approx([2 * row.power_limit_w for row in rows], rel=1e-3)
    assert rows[0].throughput_samples_per_s == pytest.approx(64 / 0.1 / (200 / 170) ** (1 / 3), rel=1e-3)
    assert told.accelerator_count == 2
    seconds = sum(0.1 * (200 / (limit - 80)) ** (1 / 3) for limit in limits + [125] * 850)
    assert told.time_s == pytest.approx(seconds, rel=1e-3)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_nodes(script, environs, processes):
    """Run a script on nodes of so many processes each, and return how each node ended."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(environs)}"]
    torchrun += [f"--nproc_per_node={processes}", "--master_addr=127.0.0.1", f"--master_port={free_port()}"]
    nodes = [
        subprocess.Popen(
            [*torchrun, f"--node_rank={rank}", "--no-python", sys.executable, "-c", script],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, environ in enumerate(environs)
    ]
    return [(*node.communicate(timeout=200), node.returncode) for node in nodes]


@pytest.mark.parametrize(
    ("visible", "own", "processes", "gpus"),
    [
        (["2", "2"], "", 1, [2]),
        (["0,1,2"], "2 0", 2, [2, 0]),
        (["0,1", "2"], "", 2, [0, 1, 2]),
    ],
    ids=["one GPU seen by two nodes", "each its own", "a node of two GPUs and one of one that is shared"],
)
def test_every_gpu_of_every_process_counts_once(fake_gpus, assignment, tmp_path, visible, own, processes, gpus):
    fake_gpus.set(GPUS="3")
    usual = fake_gpus.environ | {"ZEUS_KFP_TRIAL": str(tmp_path / "trial.json"), "OWN_GPUS": own}
    ended = run_nodes(NODES, [usual | {"CUDA_VISIBLE_DEVICES": value} for value in visible], processes)
    assert [code for _, _, code in ended] == [0] * len(visible), ended
    told = Summary.read(tmp_path / "summary.json")
    count = len(gpus)
    assert (told.accelerator, told.accelerator_count, told.max_power_w) == ("Fake GPU", count, 300.0 * count)
    train = [row for row in told.profiles if row.phase == "train"]
    assert [row.power_limit_w for row in train] == [250, 225, 200, 175, 150, 125, 100]
    assert [row.average_power_w for row in train] == pytest.approx(
        [count * row.power_limit_w for row in train], rel=0.01
    )
    slowdown = (200 / 170) ** (1 / 3)
    samples = 64 // (processes * len(visible)) * processes * len(visible)
    assert train[0].throughput_samples_per_s == pytest.approx(samples / 0.1 / slowdown, rel=0.01)
    assert {row.accelerator_count for row in train} == {count}
    # Evaluation ran in the first process alone, whose samples are not everyone's.
    evals = [row for row in told.profiles if row.phase == "eval"]
    local = 64 // (processes * len(visible))
    # The work is GPU 0's, which is limited only where it is among them.
    alone = [local / (200 / ((row.power_limit_w if 0 in gpus else 250) - 80)) ** (1 / 3) for row in evals]
    assert [row.throughput_samples_per_s for row in evals] == pytest.approx(alone, rel=0.01)
    assert evals
    seconds = sum(5 * (200 / (row.power_limit_w - 80)) ** (1 / 3) for row in train)
    assert told.energy_j > count * 100 * seconds
    # What was set was set on these GPUs alone, and is put back.
    assert [fake_gpus.set_count(index) > 5 for index in range(3)] == [index in gpus for index in range(3)]
    assert fake_gpus.limits_w() == [250, 250, 250]


def test_gpus_of_different_models_on_different_nodes_are_refused_by_name(fake_gpus, assignment, tmp_path):
    fake_gpus.set(GPUS="2", NAME_1="Other GPU")
    usual = fake_gpus.environ | {"ZEUS_KFP_TRIAL": str(tmp_path / "trial.json"), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    ended = run_nodes(NODES, [usual | {"CUDA_VISIBLE_DEVICES": value} for value in "01"], 1)
    assert all(code for _, _, code in ended)
    assert "process 0: 1 x Fake GPU, process 1: 1 x Other GPU" in ended[0][1] + ended[1][1]
    assert fake_gpus.limits_w() == [250, 250]


def test_without_gpus_the_estimate_is_of_all_processes_and_of_the_machine_once(assignment, tmp_path):
    busy = """
import atexit, time
from torch import distributed
from zeus_kfp.zeus_core.training import Trial
distributed.init_process_group("gloo")
atexit.register(distributed.destroy_process_group)  # else gloo's threads may abort a process that ends
trial = Trial.from_environment()
for epoch in trial.epochs():
    start = time.process_time()
    while time.process_time() - start < 0.5:
        pass
    trial.report_metric(1.0)
"""
    environ = os.environ | {"ZEUS_KFP_TRIAL": str(tmp_path / "trial.json"), "CUDA_VISIBLE_DEVICES": ""}
    torchrun(["--no-python", sys.executable, "-c", busy], environ)
    told = Summary.read(tmp_path / "summary.json")
    assert (told.energy_source, told.accelerator_count) == ("estimate", len(os.sched_getaffinity(0)))
    # Two processes, each for half a second, at 10 W.
    assert told.energy_j >= 10
    assert told.max_power_w == 10 * told.accelerator_count


@pytest.mark.parametrize(
    ("claims", "parts"),
    [
        ([("a", "b"), ("a",), ("b",)], [("a", "b"), (), ()]),
        ([("a",), ("b",)], [("a",), ("b",)]),
        ([("a",), ("a", "b"), ("b", "c", "c")], [("a",), ("b",), ("c",)]),
        ([(), ("a",)], [(), ("a",)]),
        ([], []),
    ],
)
def test_what_several_claim_is_the_first_ones(claims, parts):
    assert parted(claims) == parts


GPU = Hardware("GPU", 2, 600.0, 250.0)
CPU = Hardware("Xeon", 8, 80.0, None)


@pytest.mark.parametrize(
    ("shares", "all_of_it"),
    [
        ([("a", GPU)], GPU),
        ([("a", GPU), ("b", GPU)], Hardware("GPU", 4, 1200.0, 250.0)),
        ([("a", GPU), ("b", replace(GPU, power_limit_w=200.0))], Hardware("GPU", 4, 1200.0, None)),
        ([("a", GPU), ("b", replace(GPU, max_power_w=0.0))], Hardware("GPU", 4, 0.0, 250.0)),
        ([("node", CPU), ("node", CPU), ("other", CPU)], Hardware("Xeon", 16, 160.0, None)),
        ([("node", CPU), ("other", replace(CPU, accelerator="EPYC"))], Hardware("Xeon + EPYC", 16, 160.0, None)),
    ],
)
def test_what_all_processes_run_on_is_the_sum(shares, all_of_it):
    assert joined(shares) == all_of_it


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8), max_size=8))
def test_whatever_is_claimed_each_source_is_one_processs(claims):
    parts = parted(claims)
    given_out = [source for part in parts for source in part]
    assert sorted(given_out) == sorted({source for claim in claims for source in claim})
    assert all(set(part) <= set(claim) for part, claim in zip(parts, claims, strict=True))


def test_energy_counts_once_and_time_is_the_slowest_ones():
    printed = torchrun(["--no-python", sys.executable, "-c", REDUCE], os.environ)
    results = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    # The leader's value; one machine's energy; the slower time; two machines' energy; unknown energy is unknown; and
    # each one's own value once it is on its own.
    assert sorted(results) == [[7.0, 100.0, 2.0, 200.0, None, own] for own in (5.0, 6.0)]


def test_a_leader_that_fails_does_not_wait_for_the_others(assignment, tmp_path):
    environ = os.environ | {"ZEUS_KFP_TRIAL": str(tmp_path / "trial.json")}
    command = [*TORCHRUN, "--no-python", sys.executable, "-c", FAIL]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "a bug of the user's" in done.stderr
    assert Summary.read(tmp_path / "summary.json").epochs == 1


def test_without_a_launcher_a_process_trains_alone():
    group = open_group({})
    assert isinstance(group, SoleProcess)
    assert isinstance(open_group({"WORLD_SIZE": "1", "RANK": "0"}), SoleProcess)
    assert (group.agree(3.0), math.isnan(group.agree(math.nan))) == (3.0, True)


@pytest.mark.parametrize(
    "environ",
    [
        {"WORLD_SIZE": "2"},
        {"WORLD_SIZE": "2", "RANK": "2"},
        {"WORLD_SIZE": "two", "RANK": "0"},
        {"WORLD_SIZE": "2", "RANK": "-1"},
        {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_RANK": "2"},
        {"WORLD_SIZE": "0", "RANK": "0"},
    ],
)
def test_a_launcher_that_makes_no_sense_is_named(environ):
    with pytest.raises(InvalidValueError, match="name no process of a group"):
        open_group(environ)


@pytest.mark.parametrize(
    ("visible", "own"), [(None, "0,1"), ("3,5,7", "3,5"), ("GPU-aa", "GPU-aa"), ("", ""), ("2,3", "2,3")]
)
def test_only_the_gpus_of_the_group_are_its_own(visible, own):
    environ = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"} | (
        {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    )
    assert own_gpus(environ)["CUDA_VISIBLE_DEVICES"] == own
    assert own_gpus({"CUDA_VISIBLE_DEVICES": "1"}) == {"CUDA_VISIBLE_DEVICES": "1"}


def test_a_batch_that_cannot_be_divided_is_named(tmp_path, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert Trial.local(batch_size=8, target_metric=1.0, directory=tmp_path).local_batch_size == 4
    with pytest.raises(InvalidValueError, match="a batch of 7 samples can't be divided among 2 processes"):
        _ = Trial.local(batch_size=7, target_metric=1.0, directory=tmp_path).local_batch_size
