"""The stage_done component: `from zeus_kfp.components.stage_done import stage_done`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
