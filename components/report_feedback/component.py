"""Report a trial's outcome to the store."""

from typing import List

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def report_feedback(
    job_id: str,
    run_id: str,
    slot: int,
    outcome: str,
    profile: dsl.Input[dsl.Artifact],
) -> List[int]:
    """Store what came of a trial and return the slots still to try, none once the target is reached.

    Args:
        job_id: Name of the job.
        run_id: The KFP run; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        slot: Which try of the recurrence, from 1.
        outcome: What train_with_profiling returned (JSON).
        profile: Power and throughput that it measured (JSON).
    """
    from zeus_kfp.state_store import StateStore
    from zeus_kfp.zeus_core import TrialOutcome, read_profiles

    result = TrialOutcome.from_json(outcome)
    profiles = read_profiles(profile.path)
    with StateStore.from_environment() as store:
        trial = store.report(job_id, run_id, slot, result, profiles)
        remaining = store.remaining_slots(job_id, run_id, slot)
    print(f"reported trial {trial.number}: batch size {trial.batch_size}: {trial.state} {trial.reason}")
    return list(remaining)
