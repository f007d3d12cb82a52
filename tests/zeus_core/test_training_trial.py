import dataclasses
import json

import pytest

from zeus_kfp.zeus_core.errors import DivergedError, InvalidValueError
from zeus_kfp.zeus_core.learning_curve import Milestone
from zeus_kfp.zeus_core.training import Trial
from zeus_kfp.zeus_core.training.local import local_assignment
from zeus_kfp.zeus_core.training.summary import Ending, Summary


class ScriptedMachine:
    """A meter and a clock: a call of `work` is what a step of training would take."""

    name, estimated, accelerator, accelerator_count = "scripted", False, "Test GPU", 2
    shortest_window_s = 0.0
    settling_s = 0.0
    power_limit_w = 150.0

    def __init__(self, max_power_w=200.0):
        self.max_power_w = max_power_w
        self.total_j: float | None = 0.0
        self.now_s = 100.0
        self.is_closed = False

    def energy_j(self):
        return self.total_j

    def close(self):
        self.is_closed = True

    def clock(self):
        return self.now_s

    def work(self, energy_j, time_s):
        self.now_s += time_s
        if self.total_j is not None:
            self.total_j += energy_j


@pytest.fixture
def machine():
    return ScriptedMachine()


@pytest.fixture
def make_trial(machine, tmp_path):
    def make(earlier_energy_j=0.0, earlier_time_s=0.0, earlier_best_metric=None, reference=(), **knobs):
        usual = {
            "batch_size": 32,
            "target_metric": 0.9,
            "higher_is_better": True,
            "max_epochs": 10,
            "learning_rate_factor": 2.0,
            "eta_knob": 0.5,
            "cost_threshold": None,
            "data_path": "/data",
            "arguments": {"depth": 3},
            "directory": tmp_path,
        }
        assignment = local_assignment(**usual | knobs)
        assignment = dataclasses.replace(
            assignment,
            plan=dataclasses.replace(assignment.plan, reference=reference),
            earlier_energy_j=earlier_energy_j,
            earlier_time_s=earlier_time_s,
            earlier_best_metric=earlier_best_metric,
        )
        return Trial(assignment, meter=machine, clock=machine.clock, synchronize=lambda: None)

    return make


def history(tmp_path):
    return [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]


def summary(tmp_path):
    return Summary.read(tmp_path / "summary.json")


def run_epochs(trial, machine, metrics, energy_j=100.0, time_s=1.0):
    trained = []
    metrics = iter(metrics)
    for epoch in trial.epochs():
        machine.work(energy_j, time_s)
        trial.report_metric(next(metrics))
        trained.append(epoch)
    return trained


def test_it_tells_the_training_code_what_to_do(make_trial, tmp_path):
    trial = make_trial()
    assert (trial.batch_size, trial.learning_rate_factor) == (32, 2.0)
    assert (trial.data_path, trial.arguments) == ("/data", {"depth": 3})
    assert (trial.epoch, trial.metric, trial.best_metric, trial.reached) == (-1, None, None, False)
    assert trial.model_path == str(tmp_path / "model")


@pytest.mark.parametrize(
    ("higher_is_better", "metrics", "trained"),
    [
        (True, [0.5, 0.8, 0.9, 1.0], [0, 1, 2]),
        (False, [1.5, 0.91, 0.9, 0.1], [0, 1, 2]),
        (True, [0.95], [0]),
    ],
)
def test_it_ends_at_the_epoch_that_reaches_the_target(make_trial, machine, higher_is_better, metrics, trained):
    trial = make_trial(higher_is_better=higher_is_better)
    assert run_epochs(trial, machine, metrics) == trained
    assert trial.reached
    assert trial.metric == metrics[len(trained) - 1]


def test_it_ends_after_max_epochs(make_trial, machine, tmp_path):
    trial = make_trial(max_epochs=3, cost_threshold=1.0e9)
    assert run_epochs(trial, machine, [0.3, 0.5, 0.4]) == [0, 1, 2]
    assert not trial.reached
    assert (trial.metric, trial.best_metric) == (0.4, 0.5)
    assert summary(tmp_path).reason == "max_epochs"


@pytest.mark.parametrize(
    ("threshold", "trained"),
    # An epoch costs 0.5 * 100 J + 0.5 * 200 W * 1 s = 150 J.
    [(449.0, 2), (450.0, 3), (451.0, 3), (150.0, 1), (10.0, 1), (None, 10)],
)
def test_it_stops_before_the_epoch_that_would_cross_the_threshold(make_trial, machine, threshold, trained):
    trial = make_trial(cost_threshold=threshold)
    assert len(run_epochs(trial, machine, [0.1] * 10)) == trained


def test_the_mean_of_all_epochs_predicts_the_next(make_trial, machine, tmp_path):
    trial = make_trial(cost_threshold=700.0, eta_knob=1.0)
    energies = iter([100.0, 300.0, 200.0, 200.0])
    for _ in trial.epochs():
        machine.work(next(energies), 1.0)
        trial.report_metric(0.1)
    assert [row["cost"] for row in history(tmp_path)] == [100.0, 300.0, 200.0]
    assert summary(tmp_path).reason.startswith("early stop: 600 J spent, and another epoch of about 200 J would")


def test_a_target_that_is_reached_counts_even_where_the_next_epoch_would_cross(make_trial, machine):
    trial = make_trial(cost_threshold=200.0)
    run_epochs(trial, machine, [0.9])
    assert trial.reached


@pytest.mark.parametrize("unknown", ["energy", "rated power"])
def test_without_a_cost_there_is_no_early_stop(make_trial, machine, tmp_path, unknown):
    if unknown == "energy":
        machine.total_j = None
    else:
        machine.max_power_w = 0.0
    trial = make_trial(cost_threshold=1.0, max_epochs=4)
    assert len(run_epochs(trial, machine, [0.1] * 4)) == 4
    assert [row["cost"] for row in history(tmp_path)] == [None] * 4


def test_every_epoch_leaves_a_line_and_a_summary(make_trial, machine, tmp_path):
    trial = make_trial()
    for _ in trial.epochs():
        if trial.epoch == 1:
            first = {"epoch": 1, "metric": 0.1, "energy_j": 7.0, "time_s": 2.0, "cost": 203.5}
            assert history(tmp_path) == [first]
            assert summary(tmp_path).ending is Ending.RUNNING
        machine.work(7.0, 2.0)
        trial.report_metric([0.1, 0.9][trial.epoch])
    told = summary(tmp_path)
    assert (told.ending, told.epochs, told.metric) == (Ending.ENDED, 2, 0.9)
    assert (told.energy_j, told.time_s, told.energy_source, told.max_power_w) == (14.0, 4.0, "scripted", 200.0)


def test_code_after_the_loop_costs_nothing(make_trial, machine, tmp_path):
    trial = make_trial()
    run_epochs(trial, machine, [0.9])
    machine.work(999.0, 999.0)
    trial.close()
    assert (summary(tmp_path).energy_j, summary(tmp_path).time_s) == (100.0, 1.0)
    assert machine.is_closed


def test_train_and_eval_give_a_profile_row_each(make_trial, machine, tmp_path):
    trial = make_trial()
    for _ in trial.epochs():
        for _ in trial.train(range(4)):
            machine.work(30.0, 0.5)
        for _ in trial.eval([[1, 2], [3]]):
            machine.work(5.0, 0.25)
        machine.work(1000.0, 10.0)
        trial.report_metric(0.9)
    train, evaluation = summary(tmp_path).profiles
    assert (train.phase, train.average_power_w, train.throughput_samples_per_s) == ("train", 60.0, 64.0)
    assert (evaluation.phase, evaluation.average_power_w) == ("eval", 20.0)
    assert (train.batch_size, train.power_limit_w, train.accelerator, train.accelerator_count) == (
        32,
        150.0,
        "Test GPU",
        2,
    )


def test_energy_that_never_moved_is_unknown_in_history_and_summary(make_trial, machine, tmp_path):
    trial = make_trial()
    for _ in trial.epochs():
        for _ in trial.train(range(4)):
            machine.work(0.0, 0.5)
        trial.report_metric(0.9)
    assert json.loads((tmp_path / "history.jsonl").read_text())["energy_j"] is None
    assert (summary(tmp_path).energy_j, summary(tmp_path).time_s, summary(tmp_path).profiles) == (None, 2.0, ())


@pytest.mark.parametrize("estimated", [False, True])
def test_a_row_says_whether_its_power_is_an_estimate(make_trial, machine, tmp_path, estimated):
    machine.estimated = estimated
    trial = make_trial()
    for _ in trial.epochs():
        for _ in trial.train(range(4)):
            machine.work(30.0, 0.5)
        trial.report_metric(0.9)
    assert [row.energy_estimated for row in summary(tmp_path).profiles] == [estimated]


def test_an_evaluation_inside_the_training_loop_counts_once(make_trial, machine, tmp_path):
    trial = make_trial()
    for _ in trial.epochs():
        for step in trial.train(range(2)):
            machine.work(100.0, 1.0)
            if step == 0:
                for _ in trial.eval(range(1)):
                    machine.work(7.0, 1.0)
        trial.report_metric(0.9)
    train, evaluation = sorted(summary(tmp_path).profiles, key=lambda row: row.phase, reverse=True)
    assert (train.average_power_w, evaluation.average_power_w) == (100.0, 7.0)
    assert (train.throughput_samples_per_s, evaluation.throughput_samples_per_s) == (32.0, 32.0)


def test_a_loop_that_is_left_stops_counting(make_trial, machine, tmp_path):
    trial = make_trial()
    for _ in trial.epochs():
        for step in trial.train(range(100)):
            machine.work(10.0, 1.0)
            if step == 3:
                break
        machine.work(5000.0, 1.0)
        trial.report_metric(0.9)
    assert [row.average_power_w for row in summary(tmp_path).profiles] == [10.0]


def test_the_loops_know_their_length(make_trial):
    trial = make_trial()
    for _ in trial.epochs():
        assert len(trial.train([1, 2, 3])) == 3
        with pytest.raises(TypeError, match="has no len"):
            len(trial.train(iter([1])))
        trial.report_metric(0.9)


def test_an_epoch_without_a_metric_is_named(make_trial):
    trial = make_trial()
    with pytest.raises(InvalidValueError, match=r"epoch 2 ended without a metric: call trial.report_metric"):
        for epoch in trial.epochs():
            if epoch == 0:
                trial.report_metric(0.1)


@pytest.mark.parametrize("call", [lambda trial: trial.report_metric(1), lambda trial: trial.train([1])])
@pytest.mark.parametrize("when", ["before", "after"])
def test_outside_an_epoch_nothing_is_taken(make_trial, machine, call, when):
    trial = make_trial()
    if when == "after":
        run_epochs(trial, machine, [0.9])
    with pytest.raises(InvalidValueError, match="belongs inside an epoch"):
        call(trial)


def test_a_trial_that_is_closed_trains_no_more(make_trial):
    trial = make_trial()
    trial.close()
    with pytest.raises(InvalidValueError, match="the trial is closed: use trial.epochs"):
        trial.epochs()


@pytest.mark.parametrize(
    ("knob", "says"),
    [
        ({"higher_is_better": "yes"}, "higher_is_better must be true or false, not 'yes'"),
        ({"data_path": 3}, "data_path must be text, not 3"),
        ({"arguments": [1]}, r"arguments must be what JSON can hold, not \[1\]"),
        ({"arguments": {"a": {1}}}, "arguments must be what JSON can hold"),
        ({"batch_size": "4"}, "batch_size must be an integer"),
    ],
)
def test_a_local_trial_takes_what_one_of_a_pipeline_does(tmp_path, knob, says):
    with pytest.raises(InvalidValueError, match=says):
        Trial.local(**{"batch_size": 4, "target_metric": 0.9, "directory": tmp_path} | knob)


def test_a_local_trials_data_may_be_a_path(tmp_path):
    assert Trial.local(batch_size=4, target_metric=0.9, directory=tmp_path, data_path=tmp_path).data_path == str(
        tmp_path
    )


def test_a_trial_trains_once(make_trial, machine):
    trial = make_trial()
    run_epochs(trial, machine, [0.9])
    with pytest.raises(InvalidValueError, match="can be used once"):
        trial.epochs()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_metric_that_is_no_number_ends_the_trial_as_diverged(make_trial, machine, tmp_path, value):
    trial = make_trial()
    with pytest.raises(DivergedError, match="the metric is"):
        run_epochs(trial, machine, [0.5, value])
    told = summary(tmp_path)
    assert (told.ending, told.epochs, told.metric, told.energy_j) == (Ending.DIVERGED, 1, 0.5, 200.0)


def test_training_that_goes_on_after_it_diverged_is_over_all_the_same(make_trial, machine, tmp_path):
    trial = make_trial()
    for _ in trial.epochs():
        machine.work(1.0, 1.0)
        with pytest.raises(DivergedError):
            trial.report_metric(float("nan"))
    trial.close()
    assert trial.epoch == 0
    assert summary(tmp_path).ending is Ending.DIVERGED


def test_leaving_the_loop_keeps_an_epoch_that_has_its_metric(make_trial, machine, tmp_path):
    trial = make_trial()
    for _ in trial.epochs():
        machine.work(10.0, 1.0)
        trial.report_metric(0.5)
        break
    told = summary(tmp_path)
    assert (told.ending, told.epochs, told.metric) == (Ending.ENDED, 1, 0.5)
    assert told.reason == "the training loop was left in epoch 1"


@pytest.mark.parametrize(("metric", "epochs"), [(0.5, 1), (None, 0)])
def test_closing_a_trial_ends_epochs_whose_iterator_is_still_held(make_trial, machine, tmp_path, metric, epochs):
    trial = make_trial()
    held = trial.epochs()
    next(held)
    machine.work(10.0, 1.0)
    if metric is not None:
        trial.report_metric(metric)
    trial.close()
    told = summary(tmp_path)
    assert (told.ending, told.epochs, told.energy_j) == (Ending.ENDED, epochs, 10.0)
    assert told.reason == "the training loop was left in epoch 1"
    assert list(held) == []
    assert machine.is_closed


def test_what_earlier_attempts_took_counts_against_the_threshold(make_trial, machine):
    trial = make_trial(earlier_energy_j=200.0, earlier_time_s=2.0, cost_threshold=600.0)
    assert len(run_epochs(trial, machine, [0.1] * 10)) == 2


def test_a_trial_resumes_where_its_checkpoint_stands(make_trial, machine, tmp_path):
    trial = make_trial(max_epochs=5)
    seen = []
    for epoch in trial.epochs(start=3):
        machine.work(1.0, 1.0)
        trial.report_metric(0.1)
        seen.append(epoch)
    assert seen == [3, 4]
    assert summary(tmp_path).epochs == 5


REFERENCE = (Milestone(0.3, 4.0, 9.84, 1.0), Milestone(0.6, 8.0, 9.8, 1.0))
"""Earlier trials took 4 epochs to 0.3, and 8 to 0.6; a trial that comes to either after e takes 2.46 e or 1.225 e."""


def trained(trial, machine, metrics, start=0):
    for epoch in trial.epochs(start):
        machine.work(200, 1.0)
        trial.report_metric(metrics[min(epoch - start, len(metrics) - 1)])
    trial.close()
    return trial.epoch + 1


@pytest.mark.parametrize(
    ("knobs", "metrics", "epochs", "least_epochs"),
    [
        # An epoch costs 200 J; 0.3 is missing after the fourth, so that ten epochs won't do.
        ({"max_epochs": 9}, [0.1], 4, 4 * 2.46),
        ({"max_epochs": 10}, [0.1], 5, 5 * 2.46),
        ({"max_epochs": 30, "cost_threshold": 2000.0}, [0.1], 5, 5 * 2.46),
        ({"max_epochs": 30, "cost_threshold": 2000.0}, [0.4, 0.4, 0.2, 0.2], 9, 9 * 1.225),
        ({"higher_is_better": False, "target_metric": 0.1}, [0.9], 5, 5 * 2.46),
        ({"reference": ()}, [0.1], 10, None),
    ],
)
def test_a_trial_that_is_hopeless_stops(
    make_trial, machine, tmp_path, knobs, metrics, epochs: int, least_epochs: float | None
):
    trial = make_trial(**{"reference": REFERENCE} | knobs)
    assert trained(trial, machine, metrics) == epochs
    told = Summary.read(tmp_path / "summary.json")
    assert told.least_epochs == (None if least_epochs is None else pytest.approx(least_epochs))
    assert told.reason.startswith("hopeless: " if least_epochs else "max_epochs")


def test_a_plateau_that_earlier_trials_had_too_is_waited_for(make_trial, machine, tmp_path):
    trial = make_trial(reference=(Milestone(0.2, 8.0, 8.5, 1.0), Milestone(0.6, 8.5, 8.6, 1.0)), cost_threshold=2000.0)
    assert trained(trial, machine, [0.1] * 8 + [0.95]) == 9
    assert trial.reached and Summary.read(tmp_path / "summary.json").least_epochs is None


def test_the_first_epochs_never_tell(make_trial, machine):
    assert trained(make_trial(reference=(Milestone(0.3, 1.0, 1e6, 1.0),)), machine, [0.1]) == 3


def test_an_attempt_that_goes_on_counts_the_epochs_before_it_and_is_given_a_few(make_trial, machine):
    trial = make_trial(reference=(Milestone(0.3, 4.0, 8.9, 1.0),), max_epochs=30)
    assert trained(trial, machine, [0.1], start=20) == 23
    again = make_trial(reference=(Milestone(0.3, 4.0, 8.9, 1.0),), max_epochs=30)
    assert trained(again, machine, [0.5], start=20) == 30
    relapsed = make_trial(reference=(Milestone(0.3, 4.0, 8.9, 1.0),), max_epochs=30, earlier_best_metric=0.5)
    assert trained(relapsed, machine, [0.1], start=20) == 30


def test_what_earlier_attempts_cost_leaves_fewer_epochs(make_trial, machine):
    knobs = {"reference": (Milestone(0.3, 4.0, 8.9, 1.0),), "max_epochs": 30, "cost_threshold": 3600.0}
    assert trained(make_trial(**knobs), machine, [0.1]) == 9
    burdened = make_trial(earlier_energy_j=2000.0, earlier_time_s=10.0, **knobs)
    assert trained(burdened, machine, [0.1]) == 4
