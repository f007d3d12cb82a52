"""The recurring-training pipeline."""

from zeus_kfp.pipelines.recurring_training.pipeline import recurring_training

__all__ = ["recurring_training"]
