"""The signal_drift component: `from zeus_kfp.components.signal_drift import signal_drift`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
