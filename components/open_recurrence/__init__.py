"""The open_recurrence component: `from zeus_kfp.components.open_recurrence import open_recurrence`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
