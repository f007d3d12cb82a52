"""Suggest the batch size of a recurrence's next trial."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def suggest_batch_size(job_id: str, run_id: str, slot: int, suggestion: dsl.Output[dsl.Artifact]) -> int:
    """Hand out the trial of a slot and return its batch size, 0 if the recurrence has nothing left to try.

    Args:
        job_id: Name of the job.
        run_id: The KFP run; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        slot: Which try of the recurrence, from 1; asked twice, the same trial is handed out.
        suggestion: The trial's plan (JSON): why this size, the cost at which to stop early, the target, …
    """
    from zeus_kfp.state_store import StateStore

    with StateStore.from_environment() as store:
        plan = store.suggest(job_id, run_id, slot)
    with open(suggestion.path, "w", encoding="utf-8") as file:
        file.write(plan.to_json() if plan else "{}")
    if plan is None:
        print(f"slot {slot}: nothing left to try in this recurrence")
        return 0
    print(f"trial {plan.number}: batch size {plan.batch_size}: {plan.why}")
    suggestion.metadata.update(batch_size=plan.batch_size, why=plan.why, trial=plan.number)
    return plan.batch_size
