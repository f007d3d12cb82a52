import csv
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power.selectors import (
    Energy,
    MaxSlowdown,
    SweepPoint,
    Time,
    ZeusCost,
    best_known_limit_w,
    parse_selector,
    sweep_of,
)
from zeus_kfp.zeus_core.profile import Phase, Profile
from zeus_kfp.zeus_core.validation import MAX_ENERGY_J, MAX_TIME_S

SWEEP = [
    SweepPoint(250, energy_j=100, time_s=10.0),
    SweepPoint(200, energy_j=80, time_s=10.5),
    SweepPoint(150, energy_j=70, time_s=12.0),
    SweepPoint(100, energy_j=75, time_s=18.0),
]
POINTS = st.lists(
    st.builds(SweepPoint, st.floats(1, 1000), st.floats(0.1, 1e6), st.floats(0.01, 1e5)),
    min_size=1,
    max_size=12,
    unique_by=lambda point: point.power_limit_w,
)


@pytest.mark.parametrize(
    ("selector", "limit_w"),
    [
        (Energy(), 150),
        (Time(), 250),
        # eta 1 is energy, eta 0 is time; between them: .5 * 80 + .5 * 10 * 10.5 = 92.5, against 100, 95 and 127.5.
        (ZeusCost(1.0, 10.0), 150),
        (ZeusCost(0.0, 10.0), 250),
        (ZeusCost(0.5, 10.0), 200),
        (ZeusCost(0.5, 250.0), 250),
        (MaxSlowdown(1.0), 250),
        (MaxSlowdown(1.05), 200),
        (MaxSlowdown(1.2), 150),
        (MaxSlowdown(9.0), 100),
    ],
)
def test_each_selector_chooses_by_its_own_formula(selector, limit_w):
    assert selector.choose(SWEEP).power_limit_w == limit_w


def test_equally_good_limits_give_the_faster_and_then_the_higher():
    same = [SweepPoint(100, 5, 2.0), SweepPoint(150, 5, 1.0), SweepPoint(200, 5, 1.0)]
    assert Energy().choose(same).power_limit_w == 200
    assert Time().choose(same).power_limit_w == 200
    assert ZeusCost(1.0, 1.0).choose(same).power_limit_w == 200


def read_sweep(path):
    """Return limit, energy over all GPUs and time of each row, and how many GPUs there are."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    gpus = [name for name in rows[0] if name.startswith("gpu")]
    return [
        (float(row["window_name"].rsplit("_", 1)[1]), sum(float(row[gpu]) for gpu in gpus), float(row["elapsed_time"]))
        for row in rows
    ], len(gpus)


def test_recorded_sweeps_give_the_limits_that_counting_by_hand_gives(recorded_sweep):
    rows, gpu_count = read_sweep(recorded_sweep)
    sweep = [SweepPoint(*row) for row in rows]
    assert Energy().choose(sweep).power_limit_w == min(rows, key=lambda row: row[1])[0]
    assert Time().choose(sweep).power_limit_w == min(rows, key=lambda row: row[2])[0]
    for eta in (0.0, 0.25, 0.5, 0.75, 1.0):
        costs = {limit: eta * energy + (1 - eta) * 250 * gpu_count * time for limit, energy, time in rows}
        assert ZeusCost(eta, 250.0 * gpu_count).choose(sweep).power_limit_w == min(costs, key=costs.get)
    at_highest_s = max(rows)[2]
    for factor in (1.0, 1.05, 1.2, 1.5, 3.0):
        fast_enough = [limit for limit, _, time in rows if time <= factor * at_highest_s]
        assert MaxSlowdown(factor).choose(sweep).power_limit_w == min(fast_enough)


@pytest.mark.parametrize(
    ("name", "energy_w", "cost_w"),
    # In kJ at 225, 200, 175 and 150 W: 6.32, 6.24, 6.21, 6.47; at 250, 225, 200 and 150 W: 3.18, 3.36, 3.15, 3.23.
    [("V100+resnet50+gpu0", 150.0, 175.0), ("V100+bert-base-uncased+gpu0", 125.0, 200.0)],
)
def test_the_choice_on_two_recorded_sweeps(shared_data, name, energy_w, cost_w):
    rows, _ = read_sweep(shared_data(f"zeus-power-sweeps/{name}.csv"))
    sweep = [SweepPoint(*row) for row in rows]
    assert (Energy().choose(sweep).power_limit_w, ZeusCost(0.5, 250.0).choose(sweep).power_limit_w) == (
        energy_w,
        cost_w,
    )


@given(POINTS, st.floats(0, 1), st.floats(1, 1000))
def test_no_point_of_a_sweep_costs_less_than_the_chosen_one(sweep, eta, max_power_w):
    chosen = ZeusCost(eta, max_power_w).choose(sweep)
    costs = [eta * point.energy_j + (1 - eta) * max_power_w * point.time_s for point in sweep]
    assert min(costs) == pytest.approx(eta * chosen.energy_j + (1 - eta) * max_power_w * chosen.time_s)


@given(POINTS, st.floats(1, 10))
def test_a_slowdown_is_never_larger_than_allowed(sweep, factor):
    chosen = MaxSlowdown(factor).choose(sweep)
    assert chosen.time_s <= factor * max(sweep, key=lambda point: point.power_limit_w).time_s


FEW = st.integers(1, 4)
TIED = st.dictionaries(st.sampled_from([100.0, 125.0, 150.0, 200.0, 250.0]), st.tuples(FEW, FEW), min_size=1)


@given(TIED, st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from([1.0, 1.5, 2.0, 4.0]), st.randoms())
def test_sweeps_that_tie_and_go_up_and_down_are_chosen_from_as_trying_all_pairs_would(rows, eta, factor, random):
    """Every limit is held against every other; none may beat the one that was chosen."""
    sweep = [SweepPoint(limit_w, energy_j, time_s) for limit_w, (energy_j, time_s) in rows.items()]
    random.shuffle(sweep)
    rank = {
        Energy(): lambda w: (rows[w][0], rows[w][1], -w),
        Time(): lambda w: (rows[w][1], rows[w][0], -w),
        ZeusCost(eta, 8.0): lambda w: (eta * rows[w][0] + (1 - eta) * 8 * rows[w][1], rows[w][1], -w),
        MaxSlowdown(factor): lambda w: (rows[w][1] > factor * rows[max(rows)][1], w),
    }
    for selector, badness in rank.items():
        chosen_w = selector.choose(sweep).power_limit_w
        assert not [w for w in rows if badness(w) < badness(chosen_w)]


@given(
    st.lists(st.tuples(st.sampled_from([None, 100.0, 200.0, 300.0]), st.floats(0, 500), st.floats(0, 1e6)), max_size=12)
)
def test_rows_without_power_throughput_or_limit_or_with_what_cannot_be_are_no_points(values):
    made = [row(limit_w, power_w, throughput) for limit_w, power_w, throughput in values]
    sweep = sweep_of(made)
    last = {
        w: (power, rate)
        for w, power, rate in values
        if w and power and rate and 0 < power / rate <= MAX_ENERGY_J and 1 / rate <= MAX_TIME_S
    }
    assert [point.power_limit_w for point in sweep] == sorted(last, reverse=True)
    for point in sweep:
        power_w, rate = last[point.power_limit_w]
        assert (point.energy_j, point.time_s) == (power_w / rate, 1 / rate)
    known_w = best_known_limit_w(made, **OURS | {"accelerator": "GPU"})
    assert (known_w is None) is (len(last) < 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, None, "3"])
@pytest.mark.parametrize("place", [1, 2])
def test_a_row_that_holds_no_number_is_refused(value, place):
    values = [200.0, 150.0, 15.0]
    values[place] = value
    with pytest.raises(InvalidValueError):
        row(*values)


@pytest.mark.parametrize("selector", [Energy(), Time(), ZeusCost(0.5, 1.0), MaxSlowdown(1.1)])
def test_an_empty_sweep_has_no_best(selector):
    with pytest.raises(InvalidValueError, match="an empty sweep has no best power limit"):
        selector.choose([])


@pytest.mark.parametrize("values", [(0, 1, 1), (100, float("nan"), 1), (100, 1, -1), ("100", 1, 1), (100, 1, 0)])
def test_a_point_that_is_none_is_refused(values):
    with pytest.raises(InvalidValueError):
        SweepPoint(*values)


@pytest.mark.parametrize(
    ("objective", "kind"),
    [("cost", ZeusCost), ("Energy", Energy), (" time ", Time), ("slowdown:1.1", MaxSlowdown)],
)
def test_an_objective_names_a_selector(objective, kind):
    assert isinstance(parse_selector(objective, eta_knob=0.5, max_power_w=1.0), kind)


@pytest.mark.parametrize("objective", ["", "speed", "slowdown", "slowdown:", "slowdown:0.9", "slowdown:nan", "cost:1"])
def test_an_objective_that_is_none_is_named(objective):
    with pytest.raises(InvalidValueError, match=r"must be cost, energy, time or slowdown:FACTOR"):
        parse_selector(objective, eta_knob=0.5, max_power_w=1.0)


@pytest.mark.parametrize("factor", [0.99, 0, -1, float("nan"), float("inf"), "1.1"])
def test_a_slowdown_below_one_is_refused(factor):
    with pytest.raises(InvalidValueError, match="slowdown factor must be"):
        MaxSlowdown(factor)


def row(limit_w, power_w, throughput, phase=Phase.TRAIN):
    return Profile(32, phase, limit_w, power_w, throughput, "GPU", 1)


def test_a_sweep_is_what_a_sample_takes_in_training():
    rows = [row(100, 80, 10), row(200, 150, 15), row(None, 5, 5), row(150, 1, 1, Phase.EVAL), row(120, 0.0, 0.0)]
    assert sweep_of(rows) == [SweepPoint(200, 10, 1 / 15), SweepPoint(100, 8, 0.1)]


OURS = {"batch_size": 32, "accelerator": "GPU", "accelerator_count": 1, "eta_knob": 1.0, "max_power_w": 200.0}


@pytest.mark.parametrize(
    ("rows", "limit_w"),
    [
        ([row(200, 150, 15), row(100, 80, 10)], 100),
        ([row(100, 80, 10), row(200, 150, 15), row(100, 800, 10)], 200),
        ([row(100, 80, 10)], None),
        ([row(100, 80, 10), row(100, 70, 10)], None),
        ([], None),
        ([row(200, 150, 15), dataclasses.replace(row(100, 80, 10), batch_size=64)], None),
        ([row(200, 150, 15), dataclasses.replace(row(100, 80, 10), accelerator="Other")], None),
        ([row(200, 150, 15), dataclasses.replace(row(100, 80, 10), accelerator_count=2)], None),
        ([row(200, 150, 15), dataclasses.replace(row(100, 80, 10), energy_estimated=True)], None),
    ],
)
def test_what_earlier_trials_found_holds_for_the_same_work_on_the_same_gpus(rows, limit_w):
    assert best_known_limit_w(rows, **OURS) == limit_w
