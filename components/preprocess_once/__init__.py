"""The preprocess_once component."""

from zeus_kfp.components.preprocess_once.component import preprocess_once

__all__ = ["preprocess_once"]
