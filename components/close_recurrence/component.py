"""Close a recurrence, whatever happened in it: the pipeline's exit handler."""

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def close_recurrence(
    job_id: str,
    run_id: str,
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
    metrics: dsl.Output[dsl.Metrics],
    winner: dsl.Output[dsl.Model],
):
    """Expire trials that never reported, free the recurrence's slot, write the report, publish the winner.

    Decides from the store's rows alone: the final status that KFP hands to an exit handler is unreliable.

    Args:
        job_id: Name of the job.
        run_id: The KFP run; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        report: The report of the job and this recurrence, one self-contained HTML page.
        summary: The same as Markdown.
        metrics: The recurrence's figures: trials, batch size, epochs, energy_j, time_s, cost, …
        winner: The winner's model, so that a run which failed later has it too.
    """
    from zeus_kfp.components.close_recurrence.closing import close_and_report

    close_and_report(job_id, run_id, report=report, summary=summary, metrics=metrics, winner=winner)
