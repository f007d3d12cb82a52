"""The components, one by one, in somebody else's pipeline: two trials in a row, no loop, no exit handler."""

from kfp import dsl

from zeus_kfp.components.close_recurrence import close_recurrence
from zeus_kfp.components.open_recurrence import open_recurrence
from zeus_kfp.components.report_feedback import report_feedback
from zeus_kfp.components.select_winner import select_winner
from zeus_kfp.components.suggest_batch_size import suggest_batch_size
from zeus_kfp.components.train_with_profiling import train_with_profiling
from zeus_kfp.pipelines.local import run_locally
from zeus_kfp.state_store import StateStore

RUN_ID = dsl.PIPELINE_JOB_ID_PLACEHOLDER
TRAIN = """
def train(trial):
    for _ in trial.epochs():
        for _ in trial.train(range(3)):
            sum(range(50_000))
        trial.report_metric(0.5 if trial.batch_size == 4 else 0.1)
    open(trial.model_path, "w").write(str(trial.batch_size))
"""


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def make_data(data: dsl.Output[dsl.Dataset]):
    with open(data.path, "w") as file:
        file.write("own data")


@dsl.pipeline(name="own-dag")
def own_dag(sizes: list[int]):
    opened = open_recurrence(
        job_id="own", run_id=RUN_ID, batch_sizes=sizes, default_batch_size=8, target_metric=0.5, max_epochs=1
    )
    data = make_data()
    previous = opened
    for slot in (1, 2):
        suggested = suggest_batch_size(job_id="own", run_id=RUN_ID, slot=slot).after(previous)
        trained = train_with_profiling(
            data=data.outputs["data"],
            suggestion=suggested.outputs["suggestion"],
            batch_size=suggested.outputs["Output"],
            entry_point="train",
            entry_source=TRAIN,
        )
        previous = report_feedback(
            job_id="own",
            run_id=RUN_ID,
            slot=slot,
            outcome=trained.outputs["Output"],
            profile=trained.outputs["profile"],
        )
    winner = select_winner(job_id="own", run_id=RUN_ID).after(previous)
    close_recurrence(job_id="own", run_id=RUN_ID).after(winner)


def test_a_dag_of_ones_own_fills_the_store(tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    run_locally(own_dag, store_url=url, root=tmp_path / "root", parameters={"sizes": [4, 8]})
    with StateStore(url) as store:
        assert [(t.batch_size, t.state.value) for t in store.trials("own")] == [(8, "not_reached"), (4, "reached")]
        assert [p.profile.phase.value for p in store.profiles("own")] == ["train", "train"]
        assert store.recurrences("own")[0].batch_size == 4
