"""Which trials may be stopped as hopeless, and by what.

The reference of a trial comes from the learning curves of all batch sizes of its job (see `learning_curve`). A trial
that was stopped can't show that the reference was wrong for it. So a batch size whose last `PATIENCE` trials were all
stopped goes without one, and its next trial as far as its cost threshold allows: where the curves have changed, as they
do with the data, that is how the job finds out.
"""

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learning_curve import Reference, reference_of
from zeus_kfp.zeus_core.learnt import Learnt

PATIENCE = 2
"""Trials of a batch size in a row that may be stopped as hopeless."""


def reference_for(job: JobSpec, learnt: Learnt, batch_size: int) -> Reference:
    """Return what earlier trials tell of a trial's way to the target; empty if it is not to be stopped by that.

    Args:
        job: Its job's knobs.
        learnt: What the trials before taught.
        batch_size: Samples.
    """
    if not job.hopeless_stop or learnt.arm(batch_size).hopeless_in_row >= PATIENCE:
        return ()
    curves = [(size, curve) for size, arm in learnt.arms.items() for curve in arm.curves]
    return reference_of(curves, batch_size, higher_is_better=job.higher_is_better)
