import pytest

from zeus_kfp.zeus_core.meters.visible_devices import names_none, visible_devices

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
    ("value", "is_none"),
    [(None, False), ("", True), (" ", True), ("-1", True), ("NoDevFiles", True), (",0", True), ("²", True)]
    + [(value, False) for value in ("0", " 3,9", "GPU-55", "MIG-4e2b0f0a")],
)
def test_a_value_that_hides_every_gpu_is_known_without_asking_for_them(value, is_none):
    assert names_none(value) is is_none
