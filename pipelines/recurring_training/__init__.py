"""The recurring-training pipeline."""

from zeus_kfp.pipelines.recurring_training.pipeline import recurring_training
from zeus_kfp.pipelines.recurring_training.stages import Stage

__all__ = ["Stage", "recurring_training"]
