import dataclasses
import math

import pytest

from zeus_kfp.components.close_recurrence.report_data import ReportData, mean, scalar_metrics
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core.errors import UnknownJobError
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.trial import Purpose, TrialOutcome, TrialState

E, S = Purpose.EXPLORATION, Purpose.SAMPLING
R, N, OOM = TrialState.REACHED, TrialState.NOT_REACHED, TrialState.OOM


def test_a_rows_cost_is_compared_with_the_mean_of_what_the_default_reached_the_target_for(build):
    data = build([[(32, R, 5, 100, E)], [(32, R, 5, 300, E)], [(32, N, 9, 9000, E), (64, R, 5, 50, E)]])
    assert [row.cost_vs_default for row in data.rows] == [0.5, 1.5, 9050 / 200]


def test_there_is_no_comparison_until_the_default_has_reached_the_target(build):
    data = build([[(32, N, 5, 100, E), (64, R, 5, 50, E)]])
    assert data.baseline is None
    assert data.rows[0].cost_vs_default is None


def test_a_row_tells_what_was_tried_and_whether_it_explored(digits):
    seventh, eighth = digits.rows[6:8]
    assert seventh.tried == ((1024, OOM), (128, R))
    assert (seventh.batch_size, seventh.trials, seventh.explored) == (128, 2, True)
    assert (eighth.batch_size, eighth.trials, eighth.explored) == (256, 1, False)


def test_a_recurrence_of_unknown_energy_shows_none_instead_of_zero(build):
    data = build([[(1024, OOM, 0, None, E)]])
    assert data.rows[0].energy_j is None


def test_the_metrics_of_a_run_are_its_own(digits):
    assert scalar_metrics(digits, "run-3") == {
        "reached": 1.0,
        "trials": 2.0,
        "batch_size": 64.0,
        "epochs": 15.0,
        "metric": 0.953,
        "energy_j": pytest.approx(0.92 * 3870),
        "energy_estimated": 1.0,
        "time_s": pytest.approx(1.08 * 3870 / 65),
        "cost": 3870.0,
        "cost_vs_default_percent": pytest.approx(100 * 3870 / 1405),
    }


def test_metrics_that_are_not_known_or_not_finite_are_left_out(build):
    data = build([[(1024, OOM, 0, None, E)]])
    endless = dataclasses.replace(data.recurrences[0], cost=math.inf, time_s=math.nan)
    metrics = scalar_metrics(dataclasses.replace(data, recurrences=(endless,)), "run-1")
    assert metrics == {"reached": 0.0, "trials": 1.0, "epochs": 0.0}


@pytest.mark.parametrize("run_id", ["", "run-99"])
def test_a_run_that_is_no_recurrence_has_no_metrics(digits, run_id):
    assert scalar_metrics(digits, run_id) == {}


@pytest.mark.parametrize(
    ("values", "expected"),
    [([], None), ([None, math.inf, math.nan], None), ([1.0, None, 3.0], 2.0), ([1.7e308] * 3, 1.7e308)],
)
def test_a_mean_is_that_of_the_finite_values_and_does_not_overflow(values, expected):
    assert mean(values) == (None if expected is None else pytest.approx(expected))


def test_a_history_is_read_from_the_store(tmp_path):
    job = JobSpec("digits", (16, 32), 32, target_metric=0.9)
    reached = TrialOutcome(R, epochs=4, metric=0.91, energy_j=100.0, time_s=2.0, max_power_w=50.0)
    with StateStore(f"sqlite:///{tmp_path}/store.db") as store:
        store.open_recurrence(job, "run-1")
        store.suggest("digits", "run-1", 1)
        store.report("digits", "run-1", 1, reached)
        store.close_recurrence("digits", "run-1")
        data = ReportData.from_store(store, "digits")
    assert [(row.batch_size, row.cost, row.cost_vs_default) for row in data.rows] == [(32, 100.0, 1.0)]
    assert [arm.count for arm in data.arms] == [0, 1]


def test_an_unknown_job_has_no_report(tmp_path):
    with StateStore(f"sqlite:///{tmp_path}/store.db") as store, pytest.raises(UnknownJobError):
        ReportData.from_store(store, "nobody")
