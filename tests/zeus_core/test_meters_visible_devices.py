import pytest

from zeus_kfp.zeus_core.meters.visible_devices import left_out, names_none, visible_devices

UUIDS = tuple(f"GPU-{index}{index}345678-fake" for index in range(8))


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, (0, 1, 2, 3, 4, 5, 6, 7)),
        ("", ()),
        ("3", (3,)),
        ("2, 0", (2, 0)),
        ("1,1", (1,)),
        ("0,,1", (0,)),
        ("0,8,1", (0,)),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("GPU-55", (5,)),
        ("GPU-22345678-fake,0", (2, 0)),
        ("GPU-", ()),
        ("MIG-GPU-44345678-fake/1/0", (4,)),
        ("MIG-GPU-44345678-fake/1/0,MIG-GPU-44345678-fake/2/0", (4,)),
        ("MIG-4e2b0f0a-unknown", ()),
        ("²", ()),
    ],
)
def test_only_the_gpus_that_cuda_would_show(value, indices):
    assert visible_devices(value, UUIDS) == indices


@pytest.mark.parametrize(
    ("value", "entries"),
    [
        (None, ()),
        ("", ()),
        ("0,7", ()),
        ("0,", ()),
        ("0,-1", ()),
        ("0, 8 ,1", ("8", "1")),
        ("0,,1", ("1",)),
        ("0,MIG-4e2b0f0a-unknown", ("MIG-4e2b0f0a-unknown",)),
        ("cuda:0", ("cuda:0",)),
    ],
)
def test_what_cuda_leaves_out_by_mistake(value, entries):
    assert left_out(value, UUIDS) == entries


@pytest.mark.parametrize(
    ("value", "is_none"),
    [(value, True) for value in ("", " ", "-1", "NoDevFiles", "none", ",0")]
    + [(value, False) for value in (None, "0", " 3,9", "GPU-55", "MIG-4e2b0f0a", "cuda:0", "all", "²")],
)
def test_hiding_every_gpu_on_purpose_is_told_from_a_mistake(value, is_none):
    assert names_none(value) is is_none
