import pytest

from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.training.instrument import Spent
from zeus_kfp.zeus_core.training.prediction import predict_epoch

ROWS = (
    Profile(16, Phase.TRAIN, 300.0, 280.0, 100.0),
    Profile(16, Phase.TRAIN, 150.0, 140.0, 80.0),
    Profile(16, Phase.EVAL, 300.0, 100.0, 200.0),
)
SAMPLES = {Phase.TRAIN: 800, Phase.EVAL: 400}


@pytest.mark.parametrize(
    ("power_limit_w", "samples", "outside", "expected"),
    [
        (300.0, SAMPLES, Spent(0.0, 0.0), Spent(2240.0 + 200.0, 8.0 + 2.0)),
        (150.0, SAMPLES, Spent(0.0, 0.0), Spent(1400.0 + 200.0, 10.0 + 2.0)),
        (150.0, SAMPLES, Spent(50.0, 3.0), Spent(1650.0, 15.0)),
        (150.0, SAMPLES, Spent(None, 3.0), Spent(None, 15.0)),
        (150.0, {Phase.TRAIN: 800, Phase.EVAL: 0}, Spent(0.0, 0.0), Spent(1400.0, 10.0)),
        (200.0, SAMPLES, Spent(0.0, 0.0), None),
    ],
)
def test_an_epoch_takes_what_its_phases_take_at_the_limit_and_what_lies_outside(
    power_limit_w, samples, outside, expected
):
    assert predict_epoch(ROWS, power_limit_w, samples, outside) == expected


def test_an_evaluation_that_was_never_measured_leaves_the_epoch_unknown():
    assert predict_epoch(ROWS[:2], 150.0, SAMPLES, Spent(0.0, 0.0)) is None
