"""The batch size that a framework really trains with: what a trial was given holds only if the two are the same.

effective = samples of a batch in a process * processes with data of their own * batches to an update
"""

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.training.trial import Trial


def check_processes(trial: Trial, count: int, arguments: str) -> None:
    """Refuse a framework that trains with other processes than the trial knows of.

    Args:
        trial: The trial.
        count: Processes that the framework trains with.
        arguments: The framework's own that lead to it, for people.

    Raises:
        InvalidValueError: If they differ.
    """
    if count != trial.process_count:
        raise InvalidValueError(
            f"{arguments} train with {count} processes, but the trial was started as one of {trial.process_count}: "
            f"start the script with torchrun --nproc_per_node={count}, so that all of them are known, or use one"
        )


def check_batch_size(trial: Trial, effective: int, arguments: str, advice: str) -> None:
    """Refuse a framework that trains with another batch size than the trial's.

    Args:
        trial: The trial.
        effective: Samples to an update of the weights, over all processes and GPUs.
        arguments: The framework's own that lead to it, with their values, for people.
        advice: What to do.

    Raises:
        InvalidValueError: If they differ.
    """
    if effective != trial.batch_size:
        raise InvalidValueError(
            f"{arguments} make {effective} samples to an update of the weights, but the trial's batch size is "
            f"{trial.batch_size}: {advice}"
        )


def share_of_update(trial: Trial, parts: int, arguments: str) -> int:
    """Return the trial's batch size divided into equal parts.

    Args:
        trial: The trial.
        parts: Into how many.
        arguments: What they come from, with their values, for people.

    Raises:
        InvalidValueError: If it can't be divided among them.
    """
    share, rest = divmod(trial.batch_size, parts)
    if rest or not share:
        raise InvalidValueError(
            f"a batch of {trial.batch_size} samples can't be divided into {parts} equal parts ({arguments}): use batch "
            f"sizes that are multiples of {parts}, or change those arguments"
        )
    return share
