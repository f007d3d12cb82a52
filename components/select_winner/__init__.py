"""The select_winner component: `from zeus_kfp.components.select_winner import select_winner`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
