"""The fingerprint_data component: `from zeus_kfp.components.fingerprint_data import fingerprint_data`."""

from zeus_kfp.components.lazy import component_of

__getattr__ = component_of(__name__)
