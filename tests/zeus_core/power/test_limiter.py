"""Power limits on GPUs of the fake NVML, through the real nvidia-ml-py."""

import os
from contextlib import closing

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.meters.nvml_devices import open_devices
from zeus_kfp.zeus_core.power import LimitRange, open_limiter, repair_limits


def test_a_limit_is_set_on_every_gpu_and_put_back(fake_gpus):
    fake_gpus.set(GPUS="3", LIMIT_MW_1="240000")
    with closing(open_limiter()) as limiter:
        assert (limiter.name, limiter.found_w, limiter.why_not) == ("nvml", None, "")
        assert limiter.set(200) == 200
        assert fake_gpus.limits_w() == [200, 200, 200]
    assert fake_gpus.limits_w() == [250, 240, 250]


def test_only_gpus_of_this_process_are_touched(fake_gpus, monkeypatch):
    fake_gpus.set(GPUS="4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-22,1")
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        assert fake_gpus.limits_w() == [250, 150, 150, 250]


@pytest.mark.parametrize(("asked_w", "set_w"), [(85, 100), (100, 100), (180.5, 180.5), (400, 250), (250, 250)])
def test_what_is_asked_for_respects_the_card_and_what_was_found(fake_gpus, asked_w, set_w):
    with closing(open_limiter()) as limiter:
        assert limiter.set(asked_w) == set_w
        assert fake_gpus.limits_w() == [set_w]


def test_of_several_gpus_none_is_set_above_what_was_found_on_it(fake_gpus):
    fake_gpus.set(GPUS="2", LIMIT_MW_1="240000")
    with closing(open_limiter()) as limiter:
        assert limiter.set(250) == 240


def test_a_limit_above_the_one_found_must_be_allowed_explicitly(fake_gpus):
    with closing(open_limiter(highest_w=280)) as limiter:
        assert limiter.set(400) == 280
    assert fake_gpus.limits_w() == [250]


def test_a_limit_that_stands_already_is_not_set_again(fake_gpus):
    with closing(open_limiter()) as limiter:
        limiter.set(150)
        before = fake_gpus.set_count()
        limiter.set(150)
        assert fake_gpus.set_count() == before


@pytest.mark.parametrize(
    ("lowest_w", "highest_w", "step_w", "limits_w"),
    [
        (100, 250, 25, (250, 225, 200, 175, 150, 125, 100)),
        (100, 260, 25, (260, 235, 210, 185, 160, 135, 110)),
        (100, 100, 25, (100,)),
        (100, 250, 500, (250,)),
        (99.9, 100.2, 0.1, (100.2, 100.1, 100.0, 99.9)),
    ],
)
def test_a_sweep_goes_from_the_highest_to_the_lowest_and_not_below(lowest_w, highest_w, step_w, limits_w):
    assert LimitRange(lowest_w, highest_w).sweep(step_w) == pytest.approx(limits_w)


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"SET": "denied"}, "NVML refuses to set the power limit of GPU 0: Insufficient Permissions"),
        ({"SET_1": "denied"}, "NVML refuses to set the power limit of GPU 1"),
        ({"SET": "unsupported"}, "Not Supported"),
        ({"MIG_1": "on"}, "GPU 1 is divided (MIG): its limit would hold for others too"),
        ({"LIMITS": "unsupported"}, "the power limit of GPU 0 can't be read"),
    ],
)
def test_where_limits_cannot_be_set_one_line_says_so(fake_gpus, caplog, variables, why):
    fake_gpus.set(GPUS="2", **variables)
    limiter = open_limiter()
    assert (limiter.name, limiter.allowed) == ("observe only", None)
    assert limiter.set(100) == limiter.found_w
    assert why in limiter.why_not
    assert [record.message for record in caplog.records] == [
        f"power limits stay as they are; everything else is measured all the same. {limiter.why_not}"
    ]


def test_without_a_gpu_nothing_is_said(fake_gpus, caplog):
    fake_gpus.set(GPUS=None)
    assert (open_limiter().name, open_limiter().allowed) == ("", None)
    assert not caplog.records


def test_gpus_that_cannot_be_opened_are_observed(fake_gpus):
    fake_gpus.set(INIT="4")
    assert open_limiter().name == "observe only"


def test_people_can_forbid_it(fake_gpus, caplog):
    limiter = open_limiter(os.environ | {"ZEUS_KFP_POWER_LIMITS": "off"})
    assert (limiter.set(100), fake_gpus.limits_w(), caplog.records) == (250, [250], [])
    with pytest.raises(InvalidValueError, match="ZEUS_KFP_POWER_LIMITS must be on or off, not 'maybe'"):
        open_limiter({"ZEUS_KFP_POWER_LIMITS": "maybe"})


def test_a_card_that_is_not_ready_once_is_asked_again(fake_gpus):
    fake_gpus.set(NOT_READY="1", DEFAULT_MW="280000")
    with closing(open_devices(None)) as devices:
        assert devices.max_power_w == 300
    with closing(open_limiter()) as limiter:
        assert (limiter.name, limiter.set(150)) == ("nvml", 150)


def test_a_limit_without_effect_ends_the_setting(fake_gpus, caplog):
    limiter = open_limiter()
    fake_gpus.set(SET="ignored")
    assert limiter.set(150) == 250
    assert "150 W were asked for on GPU 0, but 250 W stand: the limits found are put back" in caplog.text
    fake_gpus.set(SET=None)
    assert limiter.set(150) == 250
    limiter.close()


def test_permission_that_is_lost_midway_leaves_no_gpu_behind(fake_gpus, caplog):
    fake_gpus.set(GPUS="2")
    limiter = open_limiter()
    limiter.set(200)
    fake_gpus.set(SET_1="denied")
    limiter.set(150)
    assert fake_gpus.limits_w() == [250, 200]
    assert "the 250 W found on GPU 1 can't be put back" in caplog.text
    limiter.close()
    fake_gpus.set(SET_1=None)
    repair_limits()
    assert fake_gpus.limits_w() == [250, 250]


def test_after_it_is_restored_nothing_is_set(fake_gpus):
    limiter = open_limiter()
    limiter.set(150)
    limiter.restore()
    assert limiter.set(120) == 250
    limiter.close()
    limiter.close()
    assert fake_gpus.limits_w() == [250]


def test_a_limit_that_the_driver_makes_of_the_one_asked_for_is_put_back(fake_gpus, caplog):
    limiter = open_limiter()
    real = limiter._setter.set_limit
    limiter._setter.set_limit = lambda gpu, limit_w: real(gpu, max(limit_w, 170))
    assert limiter.set(150) == 250
    assert fake_gpus.limits_w() == [250]
    limiter.close()


def test_a_limit_that_does_not_come_back_at_once_is_put_back_again(fake_gpus, caplog):
    limiter = open_limiter()
    limiter.set(150)
    fake_gpus.set(SET="ignored")
    real, tries = limiter._setter.set_limit, []

    def late(gpu, power_limit_w):
        tries.append(power_limit_w)
        fake_gpus.set(SET="ignored" if len(tries) < 3 else None)
        real(gpu, power_limit_w)

    limiter._setter.set_limit = late
    limiter.close()
    assert (tries, fake_gpus.limits_w(), caplog.records) == ([250, 250, 250], [250], [])


def test_what_could_not_be_put_back_is_said_once_and_tried_again(fake_gpus, caplog):
    limiter = open_limiter()
    limiter.set(150)
    fake_gpus.set(SET="denied")
    limiter.restore()
    assert limiter.is_over
    limiter.restore()
    assert caplog.text.count("the 250 W found on GPU 0 can't be put back") == 1
    fake_gpus.set(SET=None)
    limiter.close()
    assert fake_gpus.limits_w() == [250]
