"""The container image that the components run in."""

import os
import re
from collections.abc import Mapping

from zeus_kfp.zeus_core._version import __version__
from zeus_kfp.zeus_core.errors import InvalidValueError

DEFAULT_IMAGE = f"ghcr.io/zeus-kfp/zeus-kfp:{__version__}"


def image_from(environ: Mapping[str, str]) -> str:
    """Return the image that ZEUS_KFP_IMAGE names, the default one where it names none.

    Raises:
        InvalidValueError: If it can't be the name of an image.
    """
    return checked_image("ZEUS_KFP_IMAGE", environ.get("ZEUS_KFP_IMAGE", "").strip() or DEFAULT_IMAGE)


def checked_image(name: str, image: str) -> str:
    """Return what can be the name of an image.

    Args:
        name: What the value is called, for the message.
        image: The image.

    Raises:
        InvalidValueError: If it can't be.
    """
    if not re.fullmatch(r"[a-z0-9]([\w./:@-]*\w)?", image, re.ASCII):
        raise InvalidValueError(
            f"{name} must name an image, such as registry.example.com/zeus-kfp:{__version__}, not {image!r}"
        )
    return image


IMAGE = image_from(os.environ)
"""Read when a component is imported, so that a pipeline compiled with ZEUS_KFP_IMAGE set uses that image."""
