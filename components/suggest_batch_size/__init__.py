"""The suggest_batch_size component."""

from zeus_kfp.components.suggest_batch_size.component import suggest_batch_size

__all__ = ["suggest_batch_size"]
