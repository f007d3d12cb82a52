"""The preprocess_once component: `from zeus_kfp.components.preprocess_once import preprocess_once`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
