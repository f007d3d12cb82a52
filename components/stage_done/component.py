"""Keep that a stage whose turn it was is done."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def stage_done(job_id: str, run_id: str, stage: str):
    """Keep that a stage is done in this recurrence; without it, its turn is given to a later one.

    Args:
        job_id: Name of the job.
        run_id: The KFP run; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        stage: Name of the stage, as stage_turn was told.
    """
    from zeus_kfp.state_store import StateStore

    with StateStore.from_environment() as store:
        store.finish_stage_turn(job_id, run_id, stage)
    print(f"stage {stage} is done in this recurrence")
