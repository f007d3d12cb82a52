"""The container image that the components run in."""

import os

from zeus_kfp.zeus_core._version import __version__

DEFAULT_IMAGE = f"ghcr.io/zeus-kfp/zeus-kfp:{__version__}"

IMAGE = os.environ.get("ZEUS_KFP_IMAGE", DEFAULT_IMAGE)
"""Read when a component is imported, so that a pipeline compiled with ZEUS_KFP_IMAGE set uses that image."""
