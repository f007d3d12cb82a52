"""Batch-size policies, by the name that a job gives."""

import importlib
from functools import cache

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.policies.interface import ArmPosterior, InFlight, Policy
from zeus_kfp.zeus_core.policies.zeus import ZeusPolicy

__all__ = ["ArmPosterior", "InFlight", "Policy", "ZeusPolicy", "policy_named"]

# Imported when first asked for: a pod waits for the one policy that its job uses.
_CLASSES = {"zeus": ("zeus", "ZeusPolicy"), "bayes": ("bayes", "BayesPolicy")}


@cache
def policy_named(name: str) -> Policy:
    """Return the policy that ``name`` stands for.

    Raises:
        InvalidValueError: If there is none of that name.
    """
    if name not in _CLASSES:
        known = ", ".join(sorted(_CLASSES))
        raise InvalidValueError(f"policy must be one of {known}, not {name!r}")
    module, cls = _CLASSES[name]
    policy: Policy = getattr(importlib.import_module(f"{__name__}.{module}"), cls)()
    return policy
