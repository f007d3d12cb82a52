"""The train_with_profiling component."""

from zeus_kfp.components.train_with_profiling.component import train_with_profiling

__all__ = ["train_with_profiling"]
