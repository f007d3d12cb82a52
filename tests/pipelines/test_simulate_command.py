import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from zeus_kfp.pipelines.cli import app
from zeus_kfp.zeus_core.errors import InvalidValueError

HEAD = "dataset,network,batch_size,optimizer"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A command over three sizes that need 5, 6 and 10 epochs of 100, 60 and 40 J."""
    runs = "".join(f"d,n,{size},sgd,0.1,1,0.5,{epochs}\n" for size, epochs in ((8, 5), (16, 6), (32, 10)))
    power = "".join(f"d,n,{size},sgd,100,{joules / 100},100\n" for size, joules in ((8, 100), (16, 60), (32, 40)))
    (tmp_path / "train.csv").write_text(f"{HEAD},learning_rate,run,target_metric,target_epoch\n{runs}")
    (tmp_path / "power.csv").write_text(f"{HEAD},power_limit,time_per_epoch,average_power\n{power}")
    return [
        "simulate",
        *("--train-trace", str(tmp_path / "train.csv"), "--power-trace", str(tmp_path / "power.csv")),
        *("--default-batch-size", "8", "--target-metric", "0.5", "--max-epochs", "20"),
        *("--eta", "0.5", "--beta", "2", "--recurrences", "10", "--seeds", "2"),
    ]


def test_it_prints_a_table_and_writes_the_same_as_json_and_a_picture(command: list[str], tmp_path: Path) -> None:
    out, picture = tmp_path / "out.json", tmp_path / "curve.png"
    wanted = [*command, "--policy", "zeus", "--policy", "bayes", "--json", str(out), "--plot", str(picture)]
    result = CliRunner().invoke(app, wanted, catch_exceptions=False)
    assert result.exit_code == 0
    written = json.loads(out.read_text())
    assert (written["oracle_cost"], written["default_cost"]) == (3600, 5000)
    assert [one["policy"] for one in written["policies"]] == ["zeus", "bayes"]
    for one in written["policies"]:
        assert f"{one['cost']['mean']:.4g}" in result.output
        assert one["regret"]["mean"] == pytest.approx(one["cost"]["mean"] / 3600 - 1)
        assert len(one["regret_curve"]) == 10
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_hopeless_trials_are_stopped_where_that_is_asked_for(command: list[str], tmp_path: Path) -> None:
    ways = {8: (1, 2, 5), 16: (2, 4, 10), 32: (3, 8, 20), 64: (20, 40, 60)}
    rows = "".join(
        f"d,n,{size},sgd,0.1,1,{metric},{epochs}\n"
        for size, way in ways.items()
        for metric, epochs in zip((0.1, 0.3, 0.5), way, strict=True)
    )
    (tmp_path / "train.csv").write_text(f"{HEAD},learning_rate,run,target_metric,target_epoch\n{rows}")
    with open(tmp_path / "power.csv", "a") as stream:
        stream.write("d,n,64,sgd,100,0.3,100\n")
    costs = {}
    for flag in ("--hopeless-stop", "--no-hopeless-stop"):
        out = tmp_path / f"{flag}.json"
        wanted = [*command, "--policy", "zeus", flag, "--json", str(out)]
        assert CliRunner().invoke(app, wanted, catch_exceptions=False).exit_code == 0
        written = json.loads(out.read_text())
        assert written["job"]["hopeless_stop"] is (flag == "--hopeless-stop")
        costs[flag] = written["policies"][0]["cost"]["mean"]
    assert costs["--hopeless-stop"] < costs["--no-hopeless-stop"]


def test_recurrences_that_overlap_start_slowly_unless_told_otherwise(command: list[str], tmp_path: Path) -> None:
    costs = {}
    for flag in ("--slow-start", "--no-slow-start"):
        out = tmp_path / f"{flag}.json"
        wanted = [*command, "--policy", "bayes", "--overlap", "4", flag, "--json", str(out)]
        assert CliRunner().invoke(app, wanted, catch_exceptions=False).exit_code == 0
        costs[flag] = json.loads(out.read_text())["policies"][0]["cost"]["mean"]
    assert costs["--slow-start"] < costs["--no-slow-start"]


def test_a_change_of_gpu_needs_its_power_trace_only(command: list[str], tmp_path: Path) -> None:
    other = (tmp_path / "power.csv").read_text().replace("d,n,32,sgd,100,0.4,100\n", "")
    (tmp_path / "other.csv").write_text(other)
    out = tmp_path / "out.json"
    wanted = [*command, "--gpu-power-trace", str(tmp_path / "other.csv"), "--change-at", "6", "--json", str(out)]
    assert CliRunner().invoke(app, wanted, catch_exceptions=False).exit_code == 0
    assert json.loads(out.read_text())["job"]["batch_sizes"] == [8, 16]


@pytest.mark.parametrize("when", [[], ["--change-at", "11"]])
def test_a_change_that_would_never_come_is_refused(command: list[str], tmp_path: Path, when: list[str]) -> None:
    wanted = [*command, "--gpu-power-trace", str(tmp_path / "power.csv"), *when]
    with pytest.raises(InvalidValueError, match="comes after the last one, 10"):
        CliRunner().invoke(app, wanted, catch_exceptions=False)


def test_a_file_that_cannot_be_written_is_told_before_the_simulation(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--json", "/nowhere/out.json"])
    assert (type(result.exception), result.output) == (InvalidValueError, "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--policy", "best"], "policy must be one of"),
        (["--eta", "2"], "eta_knob"),
        (["--beta", "nan"], "beta_knob"),
        (["--recurrences", "0"], "recurrences"),
        (["--overlap", "0"], "overlap"),
        (["--json", "/nowhere/out.json"], "/nowhere/out.json can't be written"),
        (["--plot", "/nowhere/out.png"], "/nowhere/out.png can't be written"),
        (["--plot", "out.docx"], "out.docx can't be written"),
        (["--plot", "."], r"\. can't be written: it is a folder"),
        (["--json", "/"], "/ can't be written: it is a folder"),
        (["--change-at", "5"], "--change-at needs what changes"),
        (["--train-trace", "/nowhere.csv"], "/nowhere.csv can't be read"),
    ],
)
def test_what_can_not_be_done_is_said(command: list[str], more: list[str], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        CliRunner().invoke(app, [*command, *more], catch_exceptions=False)
