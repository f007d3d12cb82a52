"""The `bayes` policy."""

from zeus_kfp.zeus_core.policies.bayes.policy import BayesPolicy

__all__ = ["BayesPolicy"]
