"""The stage_turn component: `from zeus_kfp.components.stage_turn import stage_turn`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
