import math
from pathlib import Path

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.simulation import job_truth, recorded_truth
from zeus_kfp.zeus_core.simulation.traces import read_power_trace, read_train_trace

TRAIN = """dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch
d,n,8,sgd,0.1,1,0.5,4
d,n,8,sgd,0.1,2,0.5,6
d,n,16,sgd,0.1,1,0.5,
d,n,16,sgd,0.1,2,0.5,nan
d,n,16,sgd,0.1,1,0.4,3
d,n,32,sgd,0.1,1,0.4,3
"""
POWER = """dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
d,n,8,sgd,100,20,90
d,n,8,sgd,200,10,150
d,n,16,sgd,200,5,150
d,n,32,sgd,200,5,150
d,n,64,sgd,300,5,150
"""


def write(folder: Path, train: str = TRAIN, power: str = POWER) -> tuple[Path, Path]:
    (folder / "train.csv").write_text(train)
    (folder / "power.csv").write_text(power)
    return folder / "train.csv", folder / "power.csv"


def test_a_truth_holds_every_size_that_both_traces_have(tmp_path: Path) -> None:
    truth = recorded_truth(*write(tmp_path), 0.5)
    assert {size: one.epochs for size, one in truth.sizes.items()} == {
        8: (4.0, 6.0),
        16: (math.inf, math.inf),
        32: (math.inf,),
    }
    assert truth.max_power_w == 200


def test_the_cheapest_limit_depends_on_eta_and_the_first_epoch_takes_the_mean(tmp_path: Path) -> None:
    truth = recorded_truth(*write(tmp_path), 0.5)
    by_energy, by_time = truth.priced(1.0)[8], truth.priced(0.0)[8]
    assert (by_energy.epoch.power_limit_w, by_energy.epoch_cost) == (200, 1500)
    assert (by_time.epoch.power_limit_w, by_time.epoch_cost) == (200, 2000)
    assert (by_time.first_epoch.energy_j, by_time.first_epoch.time_s) == (1650, 15)


def test_a_job_is_found_by_what_is_named_of_it(tmp_path: Path) -> None:
    other = TRAIN.replace("d,n", "e,m") + "".join(TRAIN.splitlines(keepends=True)[1:])
    paths = write(tmp_path, other, POWER + "".join(POWER.replace("d,n", "e,m").splitlines(keepends=True)[1:]))
    assert list(recorded_truth(*paths, 0.5, network="m").sizes) == [8, 16, 32]
    with pytest.raises(InvalidValueError, match=r"several jobs .* \['d/n/sgd', 'e/m/sgd'\]"):
        recorded_truth(*paths, 0.5)
    with pytest.raises(InvalidValueError, match="no job"):
        recorded_truth(*paths, 0.5, dataset="é")


def test_a_target_that_was_not_recorded_is_refused_with_those_that_were(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"0\.45 was not recorded for d/n/sgd: choose one of \[0\.4, 0\.5\]"):
        recorded_truth(*write(tmp_path), 0.45)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("d,n,8,sgd,0.1,1,0.5,4", "d,n,8,sgd,0.1,1,0.5,-4", "line 2: target_epoch must be a finite number above 0"),
        ("d,n,8,sgd,0.1,1,0.5,4", "d,n,8.5,sgd,0.1,1,0.5,4", "line 2: batch_size must be whole"),
        ("d,n,8,sgd,0.1,1,0.5,4", "d,n,8", "line 2: target_metric must be a finite number, not ''"),
        ("0.5,6", "nan,6", "line 3: target_metric must be a finite number"),
        ("target_epoch", "epochs", "lacks the columns"),
        (TRAIN, "", "lacks the columns"),
    ],
)
def test_a_bad_train_trace_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    train, _ = write(tmp_path, TRAIN.replace(old, new, 1))
    with pytest.raises(InvalidValueError, match=message):
        read_train_trace(train)


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "", "x"])
def test_a_bad_power_trace_is_refused_with_its_line(tmp_path: Path, value: str) -> None:
    _, power = write(tmp_path, power=POWER.replace("100,20,90", f"100,{value},90"))
    with pytest.raises(InvalidValueError, match="line 2: time_per_epoch must be a finite number above 0"):
        read_power_trace(power)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00", b"a\0b\n"])
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "trace.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidValueError, match=r"trace\.csv"):
        read_train_trace(path)


def test_traces_without_rows_hold_no_job() -> None:
    with pytest.raises(InvalidValueError, match="no job"):
        job_truth([], [], 0.5)
