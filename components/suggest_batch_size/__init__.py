"""The suggest_batch_size component: `from zeus_kfp.components.suggest_batch_size import suggest_batch_size`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
