import dataclasses
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.components.close_recurrence import report_format as write
from zeus_kfp.components.close_recurrence import report_story as story
from zeus_kfp.components.close_recurrence import report_tables as tables
from zeus_kfp.components.close_recurrence.report_caveats import caveats
from zeus_kfp.zeus_core.trial import Purpose, TrialState

E, S = Purpose.EXPLORATION, Purpose.SAMPLING
R, N, OOM = TrialState.REACHED, TrialState.NOT_REACHED, TrialState.OOM


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "∞"),
        (0, "0"),
        (0.01234, "0.0123"),
        (9.994, "9.99"),
        (9.999, "10.0"),
        (99.96, "100"),
        (1234567.8, "1,234,568"),
        (1e300, "1e+300"),
        (-12.34, "-12.3"),
    ],
)
def test_numbers_have_sensible_digits(value, expected):
    assert write.number(value) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (write.energy(950), "950 J"),
        (write.energy(12_345), "12.3 kJ"),
        (write.energy(None), "–"),
        (write.Scale.for_time([90]).with_unit(90), "90.0 s"),
        (write.Scale.for_time([600]).with_unit(600), "10.0 min"),
        (write.Scale.for_time([86_400]).with_unit(86_400), "24.0 h"),
        (write.percent(0.816), "82 %"),
        (write.percent(float("inf")), "–"),
        (write.plural(1, "trial"), "1 trial"),
        (write.plural(1200, "trial"), "1,200 trials"),
    ],
)
def test_quantities_come_with_their_unit(written, expected):
    assert written == expected


def test_a_column_has_one_unit_which_an_outlier_does_not_set():
    scale = write.Scale.for_energy([1500.0, None, 2500.0, float("inf"), 9e12])
    assert [scale.text(value) for value in (1500.0, None, 9e12)] == ["1.50", "–", "9,000,000,000"]
    assert scale.text(2500.0, estimated=True) == "≈ 2.50"


def test_moments_are_told_in_utc():
    assert write.moment(datetime(2026, 3, 1, 12, 30)) == "2026-03-01 12:30 UTC"
    assert write.moment(datetime(2026, 3, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))) == "2026-03-01 10:30 UTC"
    assert write.moment(datetime(2026, 3, 1, tzinfo=UTC)) == "2026-03-01 00:00 UTC"


def test_other_peoples_text_loses_its_colours_and_its_reordering():
    assert write.line("\x1b[31mred\x1b[0m\n\tand \u202egnp.exe\x00") == "red and \ufffdgnp.exe\ufffd"
    assert write.tail("a\r\nb\n" + "x" * 50, at_most=20) == "…" + "x" * 19


@given(st.text(max_size=2000), st.integers(2, 300))
def test_a_line_is_one_line_of_bounded_length(text, at_most):
    line = write.line(text, at_most=at_most)
    assert len(line) <= at_most and len(line.splitlines()) <= 1


def test_the_headline_is_honest_about_a_loss_and_says_when_it_is_paid_back(digits):
    assert story.headline(digits) == (
        "12 recurrences, exploration included, gave 11 models and cost 10 % more than 11 trainings at the default "
        "batch size 32 would have. Since the exploration a model costs 25 % less: at that rate the exploration is "
        "paid back after 5 more recurrences."
    )


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], "No recurrence has ended yet."),
        ([[(32, N, 9, 10, E)]], "None of 1 recurrence has reached the target metric yet."),
        ([[(64, R, 9, 10, E)]], "has reached the target yet, so there is nothing to compare with."),
        (
            [[(32, N, 9, 10, E), (64, R, 9, 10, E)]],
            "at the default batch size 32 has reached the target yet (1 trial),",
        ),
        ([[(32, R, 9, 10, E)]], "cost as much as 1 training at the default batch size 32 would have."),
        ([[(32, R, 9, 10, E)], [(64, R, 9, 5, S)]], "cost 25 % less than 2 trainings"),
        ([[(32, R, 9, 10, E)], [(64, N, 9, 40, S)]], "gave 1 model and cost 400 % more than 1 training"),
    ],
)
def test_the_headline_says_what_is_known(build, history, expected):
    assert expected in story.headline(build(history))


def test_what_failed_recurrences_cost_is_part_of_the_whole(build):
    tiles = story.tiles(build([[(32, R, 9, 10, E)], [(64, N, 9, 40, S)]]))
    assert [(tile.value, tile.tone) for tile in tiles][:3] == [("+400 %", "bad")] * 3
    assert tiles[3].value == "–"


def test_estimated_energy_is_called_an_estimate(digits):
    assert caveats(digits)[0].startswith("Energy estimated, not measured (marked ≈)")
    assert story.tiles(digits)[1].label == "Energy so far (estimated)"


def test_measured_energy_is_not_called_an_estimate(digits):
    measured = dataclasses.replace(
        digits,
        trials=tuple(dataclasses.replace(trial, energy_estimated=False) for trial in digits.trials),
        recurrences=tuple(dataclasses.replace(r, energy_estimated=False) for r in digits.recurrences),
    )
    assert "stimated" not in " ".join(caveats(measured)) + story.tiles(measured)[1].label


def with_meters(data, **changes):
    measured = {"energy_j": 1000.0, "energy_source": "nvml", "energy_estimated": False, "attempts": 1, "time_s": 60.0}
    *rest, last = data.trials
    last = dataclasses.replace(last, **measured | {"second_energy_source": "nvml-polling"} | changes)
    return " ".join(caveats(dataclasses.replace(data, trials=(*rest, last))))


def test_meters_that_disagree_are_pointed_out(digits):
    said = with_meters(digits, second_energy_j=2000.0)
    assert f"in 1 trial, last in trial {digits.trials[-1].number}: 1.00 kJ by nvml, 2.00 kJ by nvml-polling." in said


@pytest.mark.parametrize(
    "changes",
    [
        {"second_energy_j": 1999.0},
        {"second_energy_j": 9000.0, "time_s": 9.0},
        {"second_energy_j": None},
        {"second_energy_j": 9000.0, "attempts": 2},
        {"second_energy_j": 9000.0, "energy_estimated": True},
        {"second_energy_j": 9000.0, "energy_j": None},
    ],
)
def test_meters_that_agree_or_tell_of_different_things_are_not(digits, changes):
    assert "differ by half" not in with_meters(digits, **changes)


def test_trials_without_a_cost_and_several_accelerators_are_pointed_out(digits):
    first, *rest = digits.trials
    mixed = dataclasses.replace(digits, trials=(dataclasses.replace(first, accelerator="H200"), *rest))
    said = " ".join(caveats(mixed))
    assert "3 trials that ran out of memory, failed or never reported have no cost" in said
    assert "different accelerators, whose costs differ for that reason too: 2-core CPU, H200." in said


def test_hopeless_trials_are_told_apart(digits):
    trials = [
        dataclasses.replace(t, least_epochs=90.0, reason="hopeless: the best metric after 5 epochs is 0.6")
        if t.state is N
        else t
        for t in digits.trials
    ]
    stopped = dataclasses.replace(digits, trials=tuple(trials))
    assert "3 trials were stopped as hopeless; they count against the batch size" in " ".join(caveats(stopped))
    endings = [row.cells[4] for row in tables.trial_table(stopped, None).rows]
    assert sum(ending.startswith("hopeless: the best metric") for ending in endings) == 3
    assert sum("hopeless" in failure.title for failure in tables.failures(stopped)[0]) == 3
    assert "hopeless" not in " ".join(caveats(digits))


def test_a_move_to_another_accelerator_is_told(digits):
    moved = dataclasses.replace(digits, job=dataclasses.replace(digits.job, accelerators=("V100", "A40")))
    assert "The job has moved from V100 to A40: the epochs learnt before count on" in " ".join(caveats(moved))
    assert "moved" not in " ".join(caveats(digits))


@pytest.mark.parametrize(
    ("run_id", "expected"),
    [
        (None, ""),
        ("run-10", "This run, recurrence 10, did not reach the target (2 trials, cost 1.32 kJ, 94 % of"),
        ("run-12", "This run, recurrence 12, reached the target at batch size 256 (1 trial, cost 690 J, 49 % of"),
        ("other", "Run other is no recurrence of this job"),
    ],
)
def test_the_run_at_hand_is_told_of(digits, run_id, expected):
    assert story.this_run(digits, run_id).startswith(expected)


def test_a_run_that_was_granted_none_says_when_the_next_is_due(digits):
    assert story.this_run(digits, "other").endswith("it was granted none.")
    due_at = datetime(2026, 3, 1, 4, 30, tzinfo=UTC)
    waiting = dataclasses.replace(digits, job=dataclasses.replace(digits.job, next_due_at=due_at))
    said = story.this_run(waiting, "other")
    assert said.endswith("granted none. The next is due 2026-03-01 04:30 UTC, or when drift is signalled.")


def test_a_run_says_what_started_it_and_what_was_made_anew(digits):
    first, *rest = digits.recurrences
    why = f"recurrence 1 of job {first.job_id}. Drift was signalled: accuracy fell"
    drifted = dataclasses.replace(digits, recurrences=(dataclasses.replace(first, why=why), *rest))
    assert story.this_run(drifted, first.run_id).endswith("). Drift was signalled: accuracy fell.")
    assert story.this_run(digits, first.run_id).endswith(").")
