"""Numbers in CUDA_VISIBLE_DEVICES on a machine whose GPUs are of different models."""

import os
import sys
import types
from contextlib import closing

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters import open_meter
from zeus_kfp.zeus_core.meters.device_order import visible_value
from zeus_kfp.zeus_core.power import open_limiter, standing_limits_w


@pytest.fixture
def mixed(fake_gpus):
    """A slow card in the first place, and two fast ones."""
    return fake_gpus.set(GPUS="3", NAME="Fast GPU", NAME_0="Slow GPU")


@pytest.mark.parametrize("value", ["0", "1", "1,2", "2,0", "GPU-00345678,1", " 1 "])
def test_numbers_that_may_mean_other_cards_are_refused_with_the_fix(mixed, value):
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": value}
    why = r"CUDA_VISIBLE_DEVICES=.* does not say which GPUs are meant.*0: Slow GPU, 1: Fast GPU.*PCI_BUS_ID, or name"
    for opens in (open_meter, open_limiter):
        with pytest.raises(InvalidValueError, match=why):
            opens(environ)
    assert standing_limits_w(environ) == {}
    assert mixed.limits_w() == [250, 250, 250]


@pytest.mark.parametrize(
    ("value", "order", "limits_w"),
    [
        ("1,2", "PCI_BUS_ID", [250, 150, 150]),
        ("0", "PCI_BUS_ID", [150, 250, 250]),
        ("GPU-11345678", "", [250, 150, 250]),
        ("GPU-22,GPU-11", "FASTEST_FIRST", [250, 150, 150]),
    ],
)
def test_what_is_clear_is_taken_as_it_is(mixed, value, order, limits_w):
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": value, "CUDA_DEVICE_ORDER": order}
    with closing(open_limiter(environ)) as limiter:
        limiter.set(150)
        assert mixed.limits_w() == limits_w


@pytest.mark.parametrize("value", [None, "", "-1", "0,1,2", "2,1,0", "9", "GPU-1"])
def test_where_the_order_changes_nothing_nothing_is_asked(mixed, value):
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    if value == "9":
        with pytest.raises(InvalidValueError):
            visible_value(environ)
    else:
        assert visible_value(environ) == value


def test_gpus_of_one_model_have_the_same_numbers_everywhere(fake_gpus):
    fake_gpus.set(GPUS="3")
    assert visible_value({"CUDA_VISIBLE_DEVICES": "2,1"}) == "2,1"


def test_without_nvml_it_is_as_it_is(fake_gpus):
    fake_gpus.set(GPUS=None)
    assert visible_value({"CUDA_VISIBLE_DEVICES": "1"}) == "1"


@pytest.mark.parametrize(
    ("indices", "prefix"),
    [([1, 0], ""), ([2], "GPU-")],
)
def test_what_pytorch_has_opened_already_tells_the_cards(mixed, monkeypatch, indices, prefix):
    seen = [mixed.uuid(index) for index in indices]
    # PyTorch leaves the beginning out, or not.
    uuids = [prefix + uuid.removeprefix("GPU-") for uuid in seen]
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: len(uuids),
        get_device_properties=lambda index: types.SimpleNamespace(uuid=uuids[index]),
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert visible_value({"CUDA_VISIBLE_DEVICES": "0,1"}) == ",".join(seen)


@pytest.mark.parametrize("uuids", [["other"], [""]])
def test_cards_that_pytorch_cannot_name_are_refused(mixed, monkeypatch, uuids):
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: len(uuids),
        get_device_properties=lambda index: types.SimpleNamespace(uuid=uuids[index]),
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    with pytest.raises(InvalidValueError):
        visible_value({"CUDA_VISIBLE_DEVICES": "0,1"})
