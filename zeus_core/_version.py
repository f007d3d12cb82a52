"""The library's version, also the tag of its container image."""

__version__ = "0.1.0"
