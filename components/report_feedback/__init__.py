"""The report_feedback component: `from zeus_kfp.components.report_feedback import report_feedback`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
