"""The report_feedback component."""

from zeus_kfp.components.report_feedback.component import report_feedback

__all__ = ["report_feedback"]
