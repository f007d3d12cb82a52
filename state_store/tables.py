"""The store's tables. They never leave this package: what goes out are the frozen values of `records`.

A row is appended and then completed, never rewritten: a recurrence is opened and closed once, a trial issued and
finished once. An infinite knob is kept as NULL, since not every database holds infinities.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, DateTime, Float, Index, MetaData, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel, UniqueConstraint


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC; SQLite keeps no time zone, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Bring a moment to UTC before it is written."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Return a stored moment with its time zone."""
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _json() -> Any:
    return Field(sa_column=Column(JSON, nullable=False))


def _text() -> Any:
    return Field(default="", sa_column=Column(Text, nullable=False))


def _moment(*, nullable: bool = False) -> Any:
    return Field(default=None, sa_column=Column(UtcDateTime, nullable=nullable))


def _float(*, nullable: bool = True) -> Any:
    return Field(default=None if nullable else 0.0, sa_column=Column(Float(53), nullable=nullable))


class _Row(SQLModel):
    """Base of the tables: a registry of their own, and names that later migrations can rely on."""

    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        }
    )


class JobRow(_Row, table=True):
    """A job: every knob of its spec, and what it keeps between recurrences."""

    __tablename__ = "job"

    job_id: str = Field(primary_key=True, max_length=255)
    user: str = Field(max_length=255, index=True)
    phase: str = Field(max_length=16, index=True)
    batch_sizes: list[int] = _json()
    default_batch_size: int
    target_metric: float = _float(nullable=False)
    higher_is_better: bool
    max_epochs: int
    eta_knob: float = _float(nullable=False)
    beta_knob: float | None = _float()
    max_power_w: float = _float(nullable=False)
    max_retries: int
    num_recurrences: int
    max_concurrent_recurrences: int
    max_concurrent_recurrences_per_user: int
    period_s: float = _float(nullable=False)
    preprocess_every: int
    max_trial_time_s: float = _float(nullable=False)
    max_step_time_s: float = _float(nullable=False)
    policy: str = Field(max_length=64)
    num_pruning_rounds: int
    num_explorations: int
    window_size: int
    prior_mean: float = _float(nullable=False)
    prior_precision: float = _float(nullable=False)
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    learning_rate_rule: str = Field(max_length=32)
    power_objective: str = Field(max_length=64)
    hopeless_stop: bool
    generation: int = 0
    data_generation: int = 0
    rated_power_w: float = _float(nullable=False)
    min_recurrence_cost: float | None = _float()
    best_batch_size: int | None = None
    accelerators: list[str] = _json()
    newcomer: str = _text()
    ended_by_hand: bool = False
    counted_from: int = 0
    recurrence_count: int = 0
    trial_count: int = 0
    report_count: int = 0
    period_began_at: datetime | None = _moment(nullable=True)
    clock_back_at: datetime | None = _moment(nullable=True)
    data_version: str = Field(default="", max_length=255)
    data_began_number: int = 0
    generator_state: dict[str, Any] = _json()
    created_at: datetime = _moment()


class RecurrenceRow(_Row, table=True):
    """One KFP run of a job."""

    __tablename__ = "recurrence"
    __table_args__ = (
        UniqueConstraint("job_id", "run_id"),
        UniqueConstraint("job_id", "number"),
        Index(None, "job_id", "state"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="job.job_id", max_length=255)
    run_id: str = Field(max_length=255)
    number: int
    state: str = Field(max_length=16)
    why: str = _text()
    data_epoch: str = Field(max_length=300)
    data_missing: bool = False
    opened_at: datetime = _moment()
    lease_expires_at: datetime = _moment()
    closed_at: datetime | None = _moment(nullable=True)


class TrialRow(_Row, table=True):
    """One launch of the training code."""

    __tablename__ = "trial"
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        UniqueConstraint("recurrence_id", "slot"),
        Index(None, "job_id", "state"),
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="job.job_id", max_length=255)
    recurrence_id: int = Field(foreign_key="recurrence.id")
    number: int
    slot: int
    generation: int
    batch_size: int
    purpose: str = Field(max_length=16)
    why: str = _text()
    cost_threshold: float | None = _float()
    learning_rate_factor: float = _float(nullable=False)
    power_limit_w: float | None = _float()
    plan: str = _text()
    state: str = Field(max_length=16)
    issued_at: datetime = _moment()
    lease_expires_at: datetime = _moment()
    finished_at: datetime | None = _moment(nullable=True)
    report_number: int | None = None
    report_digest: str | None = Field(default=None, max_length=64)
    reason: str = _text()
    error: str = _text()
    num_epochs: int | None = None
    metric: float | None = _float()
    energy_j: float | None = _float()
    time_s: float | None = _float()
    cost: float | None = _float()
    power_limiter: str = Field(default="", max_length=255)
    power_limit_found_w: float | None = _float()
    power_limits_found_w: dict[str, float] = _json()
    second_energy_j: float | None = _float()
    second_energy_source: str = Field(default="", max_length=255)
    energy_source: str = Field(default="", max_length=255)
    energy_estimated: bool = False
    max_power_w: float | None = _float()
    accelerator: str = Field(default="", max_length=255)
    accelerator_count: int = 0
    node: str = Field(default="", max_length=255)
    attempts: int = 0
    model_uri: str = _text()
    exit_code: int | None = None
    data_missing: bool = False
    least_epochs: float | None = _float()
    curve: list[list[Any]] = _json()


class ProfileRow(_Row, table=True):
    """Power and throughput that a trial measured in a phase, at a power limit."""

    __tablename__ = "profile"
    __table_args__ = (UniqueConstraint("trial_id", "phase", "power_limit_w"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="job.job_id", max_length=255, index=True)
    trial_id: int = Field(foreign_key="trial.id")
    batch_size: int
    phase: str = Field(max_length=16)
    power_limit_w: float | None = _float()
    average_power_w: float = _float(nullable=False)
    throughput_samples_per_s: float = _float(nullable=False)
    accelerator: str = Field(default="", max_length=255)
    accelerator_count: int = 0
    energy_estimated: bool = False


class ArmRow(_Row, table=True):
    """What was learnt of one batch size of a job; the trial rows alone rebuild it."""

    __tablename__ = "arm"

    job_id: str = Field(foreign_key="job.job_id", primary_key=True, max_length=255)
    batch_size: int = Field(primary_key=True)
    count: int
    reached_count: int
    mean_cost: float = _float(nullable=False)
    sum_squared_deviations: float = _float(nullable=False)
    recent_costs: list[float] = _json()
    min_cost: float | None = _float()
    explorations: list[list[Any]] = _json()
    evidence: dict[str, Any] = _json()
    out_of_memory: bool
    consecutive_failures: int
    curves: list[list[list[Any]]] = _json()
    hopeless_in_row: int
    power_limit_w: float | None = _float()
    power_limit_accelerator: str = Field(default="", max_length=255)


class DriftRow(_Row, table=True):
    """A sign that a job's data or costs have changed, and the recurrence that it started."""

    __tablename__ = "drift"
    __table_args__ = (Index(None, "job_id", "recurrence_number"),)

    id: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(foreign_key="job.job_id", max_length=255)
    reason: str = Field(max_length=255)
    value: float | None = _float()
    signalled_at: datetime = _moment()
    recurrence_number: int | None = None


class StageTurnRow(_Row, table=True):
    """A recurrence in which it was a stage's turn, and when the stage was done."""

    __tablename__ = "stage_turn"

    job_id: str = Field(foreign_key="job.job_id", primary_key=True, max_length=255)
    stage: str = Field(primary_key=True, max_length=255)
    recurrence_number: int = Field(primary_key=True)
    data_epoch: str = Field(max_length=300)
    done_at: datetime | None = _moment(nullable=True)


METADATA = _Row.metadata
"""The tables, as migrations are compared with them."""

JOB = METADATA.tables["job"]
RECURRENCE = METADATA.tables["recurrence"]
TRIAL = METADATA.tables["trial"]
PROFILE = METADATA.tables["profile"]
ARM = METADATA.tables["arm"]
DRIFT = METADATA.tables["drift"]
STAGE_TURN = METADATA.tables["stage_turn"]
