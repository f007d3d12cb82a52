"""Whole recurrences under KFP's local runner; every test asserts the store's rows, not that a run ended."""

import json
import logging
from pathlib import Path

import pytest
from kfp import dsl

from zeus_kfp.components.signal_drift import signal_drift
from zeus_kfp.pipelines.local import run_locally
from zeus_kfp.pipelines.recurring_training import Stage, recurring_training
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.records import RecurrenceState
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState

JOB = {
    "job_id": "job",
    "batch_sizes": [8, 16, 32, 64],
    "default_batch_size": 32,
    "target_metric": 0.9,
    "max_epochs": 3,
    "max_retries": 3,
    "max_trial_time_s": 60.0,
}


class World:
    """A store, an artifact root and a training script whose behaviour a test sets by batch size."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.store = StateStore(url)

    def recur(self, behaviour: dict[int, str] | None = None, **options):
        defaults = JOB | {"train_arguments": json.dumps({str(k): v for k, v in (behaviour or {}).items()})} | options
        pipeline = recurring_training(train=train, preprocess=preprocess, **defaults)
        run_locally(pipeline, store_url=self.url, root=self.folder / "root")

    def trials(self):
        return [(t.recurrence_number, t.slot, t.batch_size, t.state.value) for t in self.store.trials("job")]

    def states(self):
        return [r.state for r in self.store.recurrences("job")]

    def artifact(self, task: str, name: str) -> str:
        newest = max((self.folder / "root").glob(f"*/{task}/{name}"), key=lambda path: path.stat().st_mtime)
        return newest.read_text()


def preprocess(output_path):
    import os

    os.makedirs(output_path)
    with open(os.path.join(output_path, "data.txt"), "w") as file:
        file.write("numbers")


def train(trial):
    import os
    import signal

    assert open(os.path.join(trial.data_path, "data.txt")).read() == "numbers"
    behaviour = trial.arguments.get(str(trial.batch_size), "reach")
    for epoch in trial.epochs():
        for _ in trial.train(range(4)):
            sum(i * i for i in range(20_000))
        if behaviour == "oom":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if behaviour == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "crash":
            raise RuntimeError("the script is broken")
        trial.report_metric(0.95 if behaviour == "reach" and epoch == 1 else 0.1)
    with open(trial.model_path, "w") as file:
        file.write(f"model of batch size {trial.batch_size}")


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, f"sqlite:///{tmp_path / 'store.db'}")


def test_a_recurrence_reached_by_its_first_trial_spends_one_trial(world):
    world.recur()
    (trial,) = world.store.trials("job")
    assert (trial.slot, trial.batch_size, trial.state, trial.num_epochs, trial.metric) == (
        1,
        32,
        TrialState.REACHED,
        2,
        0.95,
    )
    assert trial.energy_j > 0 and trial.time_s > 0 and trial.cost > 0 and trial.energy_estimated
    assert world.states() == [RecurrenceState.REACHED]
    assert world.artifact("close-recurrence", "report").startswith("<!")


def test_a_trial_out_of_memory_rules_out_its_size_and_the_next_one_wins(world):
    world.recur({32: "oom"})
    assert world.trials() == [(1, 1, 32, "oom"), (1, 2, 16, "reached")]
    assert world.store.learnt("job").arm(32).out_of_memory


def test_a_killed_trial_is_out_of_memory(world):
    world.recur({32: "kill"})
    assert world.trials() == [(1, 1, 32, "oom"), (1, 2, 16, "reached")]


def test_a_failed_script_leaves_its_size_as_if_it_never_ran(world):
    with pytest.raises(RuntimeError, match="select-winner"):
        world.recur({32: "crash"}, max_retries=2)
    assert world.trials() == [(1, 1, 32, "failed"), (1, 2, 32, "failed")]
    assert "the script is broken" in world.store.trials("job")[0].error
    assert world.store.learnt("job").arm(32).count == 0


def test_a_target_never_reached_fails_the_run_with_a_report_and_a_free_slot(world):
    with pytest.raises(RuntimeError, match="select-winner"):
        world.recur(dict.fromkeys(JOB["batch_sizes"], "never"), max_retries=2)
    assert [state for *_, state in world.trials()] == ["not_reached", "not_reached"]
    assert world.states() == [RecurrenceState.NOT_REACHED]
    assert "None of 1 recurrence has reached" in world.artifact("close-recurrence", "summary")
    world.recur()
    assert world.states() == [RecurrenceState.NOT_REACHED, RecurrenceState.REACHED]


def test_preprocessing_runs_once_until_its_data_is_gone(world):
    world.recur()
    world.recur()
    made = list((world.folder / "root").glob("*/preprocess-once/data"))
    assert len(made) == 1
    assert [r.data_epoch for r in world.store.recurrences("job")] == ["-0", "-0"]


def test_a_data_set_gone_from_storage_is_reported_and_made_again_by_the_next_recurrence(world):
    spec = JobSpec.from_parameters(**JOB)
    gone = TrialOutcome(TrialState.FAILED, reason="the data set is gone", data_missing=True)
    world.store.open_recurrence(spec, "earlier-run")
    world.store.suggest("job", "earlier-run", 1)
    world.store.report("job", "earlier-run", 1, gone)
    assert world.store.remaining_slots("job", "earlier-run", 1) == ()
    world.store.close_recurrence("job", "earlier-run")
    world.recur()
    assert [r.data_epoch for r in world.store.recurrences("job")] == ["-0", "-1"]


def test_a_tick_while_another_recurrence_runs_ends_green_and_says_why(world):
    spec = JobSpec.from_parameters(**JOB)
    assert world.store.open_recurrence(spec, "another-run").granted
    world.recur()
    assert world.trials() == []
    assert "max_concurrent_recurrences" in world.artifact("open-recurrence", "notice")


def test_changed_knobs_fail_the_run_before_anything_is_written(world):
    world.recur()
    with pytest.raises(RuntimeError, match="open-recurrence"):
        world.recur(eta_knob=0.9)
    assert len(world.store.trials("job")) == 1
    world.recur(eta_knob=0.9, on_knob_change="accept")
    assert world.store.job("job").spec.eta_knob == 0.9


def test_an_unknown_entry_point_fails_the_run_and_frees_the_slot(world):
    with pytest.raises(RuntimeError, match="train-with-profiling"):
        run_locally(
            recurring_training(train="no_such_module:train", **JOB), store_url=world.url, root=world.folder / "root"
        )
    assert world.trials() == [(1, 1, 32, "expired")]
    assert world.states() == [RecurrenceState.NOT_REACHED]


def test_the_winners_model_reaches_the_next_step(world, tmp_path):
    read = tmp_path / "read.txt"

    def downstream(model):
        return read_model(model=model, path=str(read))

    world.recur({32: "never"}, downstream=downstream)
    (winner,) = [t for t in world.store.trials("job") if t.state is TrialState.REACHED]
    assert winner.batch_size != 32
    assert read.read_text() == Path(winner.model_uri).read_text() == f"model of batch size {winner.batch_size}"


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def read_model(model: dsl.Input[dsl.Model], path: str):
    with open(model.path) as source, open(path, "w") as target:
        target.write(source.read())


def test_stages_run_as_often_as_they_say(world, tmp_path):
    def append_to(name):
        return lambda model: append_model(model=model, path=str(tmp_path / name))

    stages = {"evaluate": append_to("each"), "deploy": Stage(append_to("second"), every=2)}
    stages |= {"index": Stage(append_to("once"), every=0)}
    for _ in range(3):
        world.recur(stages=stages)
    lines = {name: (tmp_path / name).read_text().count("model of") for name in ("each", "second", "once")}
    assert lines == {"each": 3, "second": 2, "once": 1}


def test_a_stage_that_failed_is_run_again_by_the_next_recurrence_and_then_no_more(world, tmp_path):
    done, broken = tmp_path / "done", tmp_path / "broken"
    broken.touch()

    def two_steps(model):
        first = append_model(model=model, path=str(done))
        fail_while_there(path=str(broken)).after(first)

    stages = {"index": Stage(two_steps, every="once")}
    with pytest.raises(RuntimeError, match="fail-while-there"):
        world.recur(stages=stages)
    broken.unlink()
    for _ in range(2):
        world.recur(stages=stages)
    assert done.read_text().count("model of") == 2
    assert world.states() == [RecurrenceState.REACHED] * 3


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def fail_while_there(path: str):
    import os

    assert not os.path.exists(path), "ordered by the test"


def test_data_whose_fingerprint_changed_starts_a_recurrence_before_its_period_and_is_preprocessed_again(
    world, tmp_path, monkeypatch
):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "day-1.csv").write_text("1,2")
    weekly = {"fingerprint": [str(raw)], "period_s": 604_800.0}
    world.recur(**weekly)
    world.recur(**weekly)
    assert "is not due" in world.artifact("open-recurrence", "notice")
    (raw / "day-2.csv").write_text("3,4")
    world.recur(**weekly)
    notice = world.artifact("open-recurrence", "notice")
    assert "Drift was signalled: data_version is now" in notice and "preprocessed again" in notice
    assert [r.number for r in world.store.recurrences("job")] == [1, 2]
    assert len({r.data_epoch for r in world.store.recurrences("job")}) == 2
    world.recur(**weekly, start_now=True)
    assert [r.number for r in world.store.recurrences("job")] == [1, 2, 3]


def test_a_version_that_a_run_states_goes_before_its_fingerprint(world):
    def day():
        return 20_301

    world.recur(fingerprint=day)
    world.recur(fingerprint=day, data_version="mine")
    assert [r.data_epoch for r in world.store.recurrences("job")] == ["20301-0", "mine-0"]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def append_model(model: dsl.Input[dsl.Model], path: str):
    with open(model.path) as source, open(path, "a") as target:
        target.write(source.read())


def test_preprocessing_runs_every_so_many_recurrences(world):
    for _ in range(3):
        world.recur(preprocess_every=2)
    assert len(list((world.folder / "root").glob("*/preprocess-once/data"))) == 2
    assert "preprocess_every 2" in world.artifact("open-recurrence", "notice")


def test_a_tick_before_the_period_has_passed_ends_green_until_another_pipeline_signals_drift(world):
    @dsl.pipeline(name="watch")
    def watch():
        signal_drift(job_id="job", reason="accuracy fell", value=0.7)

    for _ in range(2):
        world.recur(period_s=3600.0)
    assert world.trials() == [(1, 1, 32, "reached")]
    assert "is not due" in world.artifact("open-recurrence", "notice")
    run_locally(watch, store_url=world.url, root=world.folder / "root")
    world.recur(period_s=3600.0)
    assert len(world.trials()) == 2
    assert [(d.reason, d.value, d.recurrence_number) for d in world.store.drifts("job")] == [("accuracy fell", 0.7, 2)]


def test_a_script_that_knows_no_python_api_trains_through_its_environment(world, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        'echo "training at $ZEUS_KFP_BATCH_SIZE"\n'
        'echo \'{"epoch": 1, "metric": 0.97}\' >> "$ZEUS_KFP_HISTORY_FILE"\n'
        'echo model > "$ZEUS_KFP_MODEL_PATH"\n'
    )
    pipeline = recurring_training(train=f"bash {script}", **JOB)
    run_locally(pipeline, store_url=world.url, root=world.folder / "root")
    (trial,) = world.store.trials("job")
    assert (trial.state, trial.metric) == (TrialState.REACHED, 0.97)


def test_a_recurrence_on_postgresql_shows_its_password_nowhere(tmp_path, postgresql_with_password, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    world = World(tmp_path, postgresql_with_password)
    world.recur({32: "never"})
    # Which size is next depends on what the first cost, which is measured.
    assert [(slot, state) for _, slot, _, state in world.trials()] == [(1, "not_reached"), (2, "reached")]
    files = [p for p in (world.folder / "root").rglob("*") if p.is_file()]
    printed = capfd.readouterr()
    shown = b"".join(p.read_bytes() for p in files) + (printed.out + printed.err + caplog.text).encode()
    assert len(files) > 10 and b"trial 2" in shown
    assert b"c@nary" not in shown and b"c%40nary" not in shown
