"""Hand the winner's model to the steps that come after."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def select_winner(job_id: str, run_id: str, model: dsl.Output[dsl.Model]) -> int:
    """Publish the model of the trial that reached the target, and return its batch size.

    Fails if no trial of the recurrence reached the target: nothing downstream shall run then.

    Args:
        job_id: Name of the job.
        run_id: The KFP run; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        model: The winner's model, at the place where its trial saved it.
    """
    from zeus_kfp.components.winner import publish_winner, require_winner
    from zeus_kfp.state_store import StateStore

    with StateStore.from_environment() as store:
        trial = require_winner(store.winner(job_id, run_id), store.trials(job_id, run_id))
    publish_winner(trial, model)
    print(f"winner: trial {trial.number}, batch size {trial.batch_size}: {trial.model_uri}")
    return trial.batch_size
