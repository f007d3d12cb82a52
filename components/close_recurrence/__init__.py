"""The close_recurrence component: `from zeus_kfp.components.close_recurrence import close_recurrence`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
