"""The domain: jobs, trials, costs, batch-size policies, meters and the training-side API.

Policies are imported from `zeus_kfp.zeus_core.policies` and the training-side object from
`zeus_kfp.zeus_core.training`: a training pod's start need not wait for numpy, nor the others for the meters.
"""

from zeus_kfp.zeus_core.cost import zeus_cost
from zeus_kfp.zeus_core.job import JobSpec, LearningRateRule
from zeus_kfp.zeus_core.profile import Phase, Profile, read_profiles, write_profiles
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialOutcome, TrialPlan, TrialState

__all__ = [
    "JobSpec",
    "LearningRateRule",
    "Phase",
    "Profile",
    "Purpose",
    "Suggestion",
    "TrialOutcome",
    "TrialPlan",
    "TrialState",
    "read_profiles",
    "write_profiles",
    "zeus_cost",
]
