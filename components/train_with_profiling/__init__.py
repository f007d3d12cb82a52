"""The train_with_profiling component: `from zeus_kfp.components.train_with_profiling import train_with_profiling`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
