"""Batch-size policies, by the name that a job gives."""

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.policies.bayes import BayesPolicy
from zeus_kfp.zeus_core.policies.interface import ArmPosterior, InFlight, Policy
from zeus_kfp.zeus_core.policies.zeus import ZeusPolicy

__all__ = ["ArmPosterior", "BayesPolicy", "InFlight", "Policy", "ZeusPolicy", "policy_named"]

_POLICIES: dict[str, Policy] = {policy.name: policy for policy in (ZeusPolicy(), BayesPolicy())}


def policy_named(name: str) -> Policy:
    """Return the policy that ``name`` stands for.

    Raises:
        InvalidValueError: If there is none of that name.
    """
    if name not in _POLICIES:
        known = ", ".join(sorted(_POLICIES))
        raise InvalidValueError(f"policy must be one of {known}, not {name!r}")
    return _POLICIES[name]
