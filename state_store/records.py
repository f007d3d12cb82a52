"""What the store hands out: frozen values, never table classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.policies import ArmPosterior
from zeus_kfp.zeus_core.profile import Profile
from zeus_kfp.zeus_core.trial import Purpose, TrialState


class JobPhase(StrEnum):
    """Whether a job still recurs."""

    RUNNING = "running"
    COMPLETED = "completed"
    """It has had all its recurrences, or somebody ended it."""
    DELETED = "deleted"
    """Somebody struck it out; its history is kept, and its name not free."""


class RecurrenceState(StrEnum):
    """The states of a recurrence: open, then exactly one of the others."""

    OPEN = "open"
    REACHED = "reached"
    NOT_REACHED = "not_reached"
    EXPIRED = "expired"


class PrunableKind(StrEnum):
    """What a job leaves in storage."""

    DATA = "data"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class OpenedRecurrence:
    """The answer to opening a recurrence.

    Attributes:
        granted: Whether it may train.
        why: If not, why not, in one sentence; else which recurrence it is.
        number: Its number in the job, from 1; 0 if not granted.
        slots: The trial slots it may use, from 1; empty if not granted.
        data_epoch: Key of the preprocessed data: the same key, no second preprocessing.
    """

    granted: bool
    why: str
    number: int
    slots: tuple[int, ...]
    data_epoch: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as registered, and where it stands.

    Attributes:
        spec: Its knobs.
        phase: Whether it still recurs.
        max_power_w: Rated power in W that its costs use; 0 before the first report.
        min_recurrence_cost: Cost in J of its cheapest recurrence so far; None without any.
        best_batch_size: Batch size that ended that recurrence.
        recurrence_count: Recurrences granted so far.
        trial_count: Trials handed out so far.
        created_at: When it was registered (UTC).
        next_due_at: When its period has passed (UTC); None without a period, or before its first recurrence.
        accelerators: Models of the accelerators that it learnt on, in the order in which it moved to them.
    """

    spec: JobSpec
    phase: JobPhase
    max_power_w: float
    min_recurrence_cost: float | None
    best_batch_size: int | None
    recurrence_count: int
    trial_count: int
    created_at: datetime
    next_due_at: datetime | None = None
    accelerators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobOverview:
    """A job and its latest recurrence.

    Attributes:
        job: The job.
        latest_state: How its latest recurrence stands; None before the first.
        latest_opened_at: When that was opened (UTC).
        latest_closed_at: When it was closed (UTC); None while open.
    """

    job: JobRecord
    latest_state: RecurrenceState | None
    latest_opened_at: datetime | None
    latest_closed_at: datetime | None


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial's row. Units are in the names; None where not known (yet).

    A trial that was stopped as hopeless has ``least_epochs``, the epochs that it very likely needed at least; one that
    reached the target has its ``curve``, (epochs, best metric so far), where that is known.
    """

    job_id: str
    run_id: str
    recurrence_number: int
    number: int
    slot: int
    batch_size: int
    purpose: Purpose
    why: str
    cost_threshold: float | None
    learning_rate_factor: float
    state: TrialState
    reason: str
    error: str
    num_epochs: int | None
    metric: float | None
    energy_j: float | None
    time_s: float | None
    cost: float | None
    energy_source: str
    energy_estimated: bool
    second_energy_j: float | None
    second_energy_source: str
    max_power_w: float | None
    accelerator: str
    accelerator_count: int
    node: str
    power_limiter: str
    power_limit_found_w: float | None
    power_limits_found_w: Mapping[str, float] = field(hash=False)
    power_limit_w: float | None
    attempts: int
    model_uri: str
    issued_at: datetime
    lease_expires_at: datetime
    finished_at: datetime | None
    least_epochs: float | None = None
    curve: Curve = ()

    @property
    def is_hopeless(self) -> bool:
        """Whether it was stopped since it was very likely to take too many epochs."""
        return self.least_epochs is not None

    @property
    def ended(self) -> str:
        """How it ended: its state, or "hopeless"."""
        return "hopeless" if self.is_hopeless else self.state.value


@dataclass(frozen=True, slots=True)
class RecurrenceRecord:
    """A recurrence's row with the sums over its trials.

    Attributes:
        job_id: The job's name.
        run_id: The KFP run.
        number: Its number in the job, from 1.
        state: How it stands.
        data_epoch: Key of its preprocessed data.
        trial_count: Trials handed out.
        batch_size: The winner's batch size; None without a winner.
        num_epochs: Epochs over all its trials.
        energy_j: Energy in J over all its trials (those of unknown energy not counted).
        time_s: Training time in s over all its trials.
        cost: Cost in J over all its trials that have one; None if none has.
        energy_estimated: Whether any of the energy was estimated.
        opened_at: When it was opened (UTC).
        closed_at: When it was closed (UTC); None while open.
        why: What started it and what it does over again, in one sentence; "" where that was not kept.
    """

    job_id: str
    run_id: str
    number: int
    state: RecurrenceState
    data_epoch: str
    trial_count: int
    batch_size: int | None
    num_epochs: int
    energy_j: float
    time_s: float
    cost: float | None
    energy_estimated: bool
    opened_at: datetime
    closed_at: datetime | None
    why: str = ""

    def in_words(self) -> str:
        """Return how it stands, in one line."""
        trials = "1 trial" if self.trial_count == 1 else f"{self.trial_count} trials"
        return f"recurrence {self.number} of {self.job_id}: {self.state} after {trials}"


@dataclass(frozen=True, slots=True)
class DriftRecord:
    """A sign that a job's data or costs have changed.

    Attributes:
        job_id: The job's name.
        reason: What has changed, in words.
        value: A figure that goes with it, whatever the reason says it is; None if none was given.
        signalled_at: When it was first signalled (UTC).
        recurrence_number: The recurrence that it started; None while it waits for one.
    """

    job_id: str
    reason: str
    value: float | None
    signalled_at: datetime
    recurrence_number: int | None


@dataclass(frozen=True, slots=True)
class Prunable:
    """Something in storage that a job no longer needs.

    Attributes:
        kind: A model, or preprocessed data.
        uri: Where a model lies; "" for data, whose artifact carries data_epoch in its metadata.
        data_epoch: Key of the data, or of that which the model was trained on.
        run_id: The KFP run that made the model, or that used the data last.
        recurrence_number: Its number in the job.
        batch_size: The model's, in samples; None for data.
        made_at: When the model's trial finished, or the recurrence that used the data last was opened (UTC).
        made_by: The KFP run in whose folder of the pipeline root it lies: for data the first that trained on it; ""
            where none did.
    """

    kind: PrunableKind
    uri: str
    data_epoch: str
    run_id: str
    recurrence_number: int
    batch_size: int | None
    made_at: datetime
    made_by: str


@dataclass(frozen=True, slots=True)
class ProfileRecord:
    """A profile and the trial that measured it.

    Attributes:
        trial_number: The trial's number in its job.
        profile: What it measured.
    """

    trial_number: int
    profile: Profile


@dataclass(frozen=True, slots=True)
class JobExport:
    """Everything that is known of a job, as it stood at one moment."""

    job: JobRecord
    recurrences: tuple[RecurrenceRecord, ...]
    trials: tuple[TrialRecord, ...]
    profiles: tuple[ProfileRecord, ...]
    arms: tuple[ArmPosterior, ...]
    drifts: tuple[DriftRecord, ...]
