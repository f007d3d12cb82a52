import math
from pathlib import Path

import pytest

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.profile import Phase, Profile, write_profiles
from zeus_kfp.zeus_core.simulation import EpochPower, Recording, recorded_job, simulate, truth_of_recordings
from zeus_kfp.zeus_core.training.history import EpochRecord

METRICS = (0.3, 0.5, 0.4, 0.7)


def epochs(energy_j: float | None = 1200.0, time_s: float = 10.0) -> tuple[EpochRecord, ...]:
    return tuple(EpochRecord(k, m, energy_j, time_s if k > 1 else 99.0) for k, m in enumerate(METRICS, start=1))


def row(
    limit_w: float | None, power_w: float, throughput: float, phase: Phase = Phase.TRAIN, count: int = 1
) -> Profile:
    return Profile(16, phase, limit_w, power_w, throughput, accelerator_count=count)


@pytest.mark.parametrize(
    ("target", "higher", "expected"), [(0.5, True, 2), (0.6, True, 4), (0.8, True, math.inf), (0.35, False, 1)]
)
def test_a_target_is_reached_by_the_first_epoch_that_does(target: float, higher: bool, expected: float) -> None:
    assert Recording(16, epochs()).epochs_to(target, higher_is_better=higher) == expected


def test_other_limits_are_scaled_from_the_one_that_the_trial_settled_at() -> None:
    profiles = (
        row(100, 90, 500),
        row(150, 125, 1000),
        row(200, 160, 1250),
        row(150, 60, 9000, Phase.EVAL),
        row(None, 5, 5),
    )
    assert Recording(16, epochs(), profiles).power() == (
        EpochPower(100, pytest.approx(1200 * 2 * 90 / 125), 20),
        EpochPower(150, 1200, 10),
        EpochPower(200, pytest.approx(1200 * 0.8 * 160 / 125), 8),
    )


def test_without_a_profile_there_is_one_limit_and_without_energy_none() -> None:
    assert Recording(16, epochs()).power() == (EpochPower(120, 1200, 10),)
    assert Recording(16, epochs()[:1]).power() == (EpochPower(pytest.approx(1200 / 99), 1200, 99),)
    assert Recording(16, epochs(energy_j=None)).power() == ()


def test_artifacts_become_a_truth_that_can_be_simulated(tmp_path: Path) -> None:
    history, profile = tmp_path / "history.jsonl", tmp_path / "profile.json"
    for one in epochs():
        one.append_to(history)
    write_profiles(profile, [row(150, 125, 1000, count=2)])
    recording = Recording.read(16, history, profile)
    slower = Recording(32, epochs(energy_j=600.0))
    truth = truth_of_recordings([recording, slower, recording], 0.6)
    assert list(truth.sizes) == [16, 32]
    assert truth.sizes[16].epochs == (4, 4)
    assert truth.sizes[16].curves == (((1, 0.3), (2, 0.5), (4, 0.7)),) * 2
    falling = truth_of_recordings([recording], 0.1, higher_is_better=False)
    assert falling.sizes[16].curves == (((1, 0.3),),) and not falling.higher_is_better
    assert truth.max_power_w == 300
    assert truth_of_recordings([recording], 0.6, max_power_w=500).max_power_w == 500
    job = recorded_job(truth, default_batch_size=16, target_metric=0.6)
    assert simulate(job, truth, recurrences=3, seeds=1).results[0].unreached == 0


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="can't be read as a history"):
        Recording.read(16, tmp_path / "nothing", tmp_path / "nothing")
    (tmp_path / "bad").write_text("{}\n")
    with pytest.raises(InvalidValueError, match="a line of the history"):
        Recording.read(16, tmp_path / "bad", tmp_path / "nothing")
    with pytest.raises(InvalidValueError, match="batch_size"):
        Recording.read(0, tmp_path / "nothing", tmp_path / "nothing")
    with pytest.raises(InvalidValueError, match="nothing can be priced"):
        truth_of_recordings([Recording(16, epochs(energy_j=None))], 0.6)
