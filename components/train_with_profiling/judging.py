"""Decide how a trial ended, from what its process left behind."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from zeus_kfp.components.train_with_profiling.out_of_memory import out_of_memory_line
from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.training.summary import Ending, Summary
from zeus_kfp.zeus_core.trial import TrialPlan, TrialState

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of SIGKILL: of the process itself, and as a shell or a container passes it on."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a training process left behind.

    Attributes:
        exit_code: Its exit code, negative for a signal.
        stopped: Why its supervisor ended it; "" if it ended by itself.
        last_lines: Last lines of its output, oldest first.
        summary: What it told; None for a command that tells nothing.
        epochs: Epochs trained to their end.
        metric: Last metric; None if none was reported.
        has_model: Whether it saved a model.
        least_epochs: Epochs that it very likely needed at least, where it was stopped as hopeless; else None.
        curve: How it reached the target; empty if it did not, or that is not known.
    """

    exit_code: int
    stopped: str
    last_lines: Sequence[str]
    summary: Summary | None
    epochs: int
    metric: float | None
    has_model: bool = False
    least_epochs: float | None = None
    curve: Curve = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a trial ended, why, and for a failure the last lines of its output."""

    state: TrialState
    reason: str
    error: str = ""


def judge(plan: TrialPlan, evidence: Evidence) -> Verdict:
    """Return how a trial ended.

    A process that reached the target and then failed, for example to save its model, has failed. One that reached
    it, left its epochs and saved its model, and only did not end, has reached it.
    """
    if evidence.exit_code == 0:
        verdict = _of_clean_exit(plan, evidence)
        if verdict.state is TrialState.REACHED or not evidence.stopped:
            return verdict
    if evidence.stopped and _only_did_not_end(plan, evidence):
        return Verdict(TrialState.REACHED, f"target reached; its process did not end by itself ({evidence.stopped})")
    if evidence.stopped:
        return Verdict(TrialState.NOT_REACHED, evidence.stopped)
    return _of_failed_exit(evidence)


def _only_did_not_end(plan: TrialPlan, evidence: Evidence) -> bool:
    left_its_epochs = evidence.summary is not None and evidence.summary.ending is Ending.ENDED
    return left_its_epochs and evidence.has_model and evidence.metric is not None and plan.is_reached(evidence.metric)


def _of_clean_exit(plan: TrialPlan, evidence: Evidence) -> Verdict:
    summary, metric = evidence.summary, evidence.metric
    if summary is not None and summary.ending is Ending.DIVERGED:
        return _diverged(summary)
    if metric is None:
        return Verdict(TrialState.FAILED, "the training code ended without reporting any metric", _text(evidence))
    if plan.is_reached(metric):
        return Verdict(TrialState.REACHED, "target reached")
    told = summary.reason if summary is not None else ""
    ended = "max_epochs" if evidence.epochs >= plan.max_epochs else f"training ended after {evidence.epochs} epochs"
    return Verdict(TrialState.NOT_REACHED, told or ended)


def _of_failed_exit(evidence: Evidence) -> Verdict:
    code, summary = evidence.exit_code, evidence.summary
    if code in _KILLED:
        reason = f"killed with SIGKILL (exit code {code}), as happens to a process that is out of memory"
        return Verdict(TrialState.OOM, reason, _text(evidence))
    if line := out_of_memory_line(evidence.last_lines):
        return Verdict(TrialState.OOM, f"out of memory: {line}", _text(evidence))
    if summary is not None and summary.ending is Ending.DIVERGED:
        return _diverged(summary)
    spoken = [line.strip() for line in evidence.last_lines if line.strip()]
    how = _how_it_ended(code)
    return Verdict(TrialState.FAILED, f"{spoken[-1]} ({how})" if spoken else how, _text(evidence))


def _diverged(summary: Summary) -> Verdict:
    return Verdict(TrialState.NOT_REACHED, f"diverged: {summary.reason}")


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed with {signal.Signals(-code).name}"
    except ValueError:
        return f"killed with signal {-code}"


def _text(evidence: Evidence) -> str:
    return "\n".join(evidence.last_lines)
