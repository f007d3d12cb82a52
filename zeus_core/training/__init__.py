"""The training side: the object that a user's training loop works with."""

from zeus_kfp.zeus_core.training.trial import Trial

__all__ = ["Trial"]
