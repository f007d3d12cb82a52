"""Say whether it is a stage's turn in a recurrence."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def stage_turn(job_id: str, run_id: str, stage: str, every: int) -> int:
    """Return 1 if a stage runs in this recurrence, else 0, and keep that it does.

    Where stage_done does not follow before the recurrence has ended, the turn is given to a later one.

    Args:
        job_id: Name of the job.
        run_id: The KFP run; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        stage: Name of the stage, unique in the job.
        every: Recurrences from one turn to the next, 1 for each; 0: once for each data epoch; -1: once per job.
    """
    from zeus_kfp.state_store import StateStore

    with StateStore.from_environment() as store:
        is_turn = store.take_stage_turn(job_id, run_id, stage, every)
    print(f"stage {stage} {'runs' if is_turn else 'does not run'} in this recurrence (every {every})")
    return int(is_turn)
