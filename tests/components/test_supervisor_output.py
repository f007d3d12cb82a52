"""What training prints under the supervisor, and what people read of it."""

import sys

from tests.components.supervised import REACHING, plan_with
from zeus_kfp.zeus_core.trial import TrialState


def test_people_read_what_happens(train, capsys):
    train(
        REACHING.replace("trial.report", "print('hello', flush=True); trial.report"), plan=plan_with(cost_threshold=1e6)
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trial 7 (try 1): batch size 64: the walk's next step; target >= 0.9 within 5 epochs")
    assert "stops early before a cost of 1e+06 J; energy estimated" in lines[0]
    assert lines.count("hello") == 2
    assert [line.split(",")[0] for line in lines if line.startswith("epoch")] == [
        "epoch 1/5: metric 0.5 (target 0.9)",
        "epoch 2/5: metric 1 (target 0.9)",
    ]
    assert lines[-1] == "trial 7: reached: target reached"


def test_a_failure_shows_the_last_lines_and_fits_into_a_parameter(train):
    code = """
    def train(trial):
        for line in range(400):
            print(line, "\\N{SNOWMAN}\\0\\udce4" .encode("utf-8", "surrogateescape") * 30)
            print("\\N{SNOWMAN}" * 200)
        print("a" * 100_000)
        raise ValueError("the end\\0")
    """
    outcome = train(code).outcome
    assert outcome.error.endswith("ValueError: the end")
    assert 1000 < len(outcome.to_json()) <= 8000


def test_output_that_nobody_reads_does_not_hold_up_training(train, monkeypatch):
    class Closed:
        encoding = "ascii"

        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            pass

    monkeypatch.setattr(sys, "stdout", Closed())
    code = (
        "def train(trial):\n    for i in range(20_000): print('\u00e4' * 20)\n"
        + "    for e in trial.epochs(): trial.report_metric(1)"
    )
    assert train(code).outcome.state is TrialState.REACHED


def test_a_lot_of_output_is_passed_on_whole(train, capsys):
    train("def train(trial):\n    for i in range(20_000): print('line', i)\n    raise SystemExit(1)")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {i}" for i in range(20_000)]
