"""The library's own exceptions: each message gives the value, what is allowed and what to do."""


class ZeusError(Exception):
    """Base of every error that this library raises on purpose."""


class InvalidValueError(ZeusError, ValueError):
    """A value from outside (a knob, a metric, a measurement) is not usable."""


class JobChangedError(ZeusError):
    """A job's knobs differ from those it was registered with."""


class JobInUseError(ZeusError):
    """A job can't be struck out or start over while a recurrence of it is open."""


class UnknownJobError(ZeusError, LookupError):
    """No job of that name is in the store."""


class UnknownRecurrenceError(ZeusError, LookupError):
    """No recurrence was opened for that run."""


class UnknownTrialError(ZeusError, LookupError):
    """No trial was handed out for that run and slot."""


class ConflictingReportError(ZeusError):
    """A finished trial was reported again with another outcome."""


class NoBatchSizeLeftError(ZeusError):
    """Every batch size of the job is ruled out."""


class NoWinnerError(ZeusError):
    """No trial of the recurrence reached the target metric, or the one that did saved no model."""


class EntryPointError(ZeusError):
    """The user's entry point can't be found or called."""


class DivergedError(ZeusError):
    """Training reported a metric that is not a number: it diverged at this batch size."""


class MixedGpusError(ZeusError):
    """The GPUs of one trial are of different models, whose power limits and speeds can't be compared."""


class StoreError(ZeusError):
    """Base of the store's errors."""


class StoreUnavailableError(StoreError):
    """The database can't be reached, or does not answer in time."""


class StoreVersionError(StoreError):
    """The database's schema is newer than this code, or is not the library's at all."""


class ClusterError(ZeusError):
    """Base of the errors of talking to a Kubeflow Pipelines API."""


class ClusterUnavailableError(ClusterError):
    """The API can't be reached, does not answer in time, or fails; the same call may work later."""


class ClusterAccessError(ClusterError):
    """The API does not know who asks, or does not let them."""


class ClusterRefusedError(ClusterError):
    """The API refused a request, and would refuse it again."""


class UnknownScheduleError(ClusterError, LookupError):
    """No schedule of that name is on the cluster."""


class ScheduleConflictError(ClusterError):
    """A schedule of that name is not this library's, or was changed by somebody else at the same time."""


class RunNotFinishedError(ClusterError, TimeoutError):
    """A run was still going on when the time to wait for it was over."""
