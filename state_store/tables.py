"""The store's tables; they never leave this package.

A job row is the lock of everything below it. Rows of recurrence, trial and profile are appended, then completed
once; arm rows and the job's running values are a fold over the trial rows and can be made again from them.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Double, Index, MetaData, Text, UniqueConstraint
from sqlmodel import Field, SQLModel

from zeus_kfp.state_store.columns import UtcDateTime


class StoreTable(SQLModel):
    """Base of the tables: metadata of their own, apart from those of the user's models."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Job(StoreTable, table=True):
    """A recurring training task: its knobs under the names of `JobSpec`, then where it stands."""

    key: int | None = Field(default=None, primary_key=True)
    job_id: str = Field(max_length=255, unique=True)
    user: str = Field(max_length=255, index=True)
    batch_sizes: list[int] = Field(sa_type=JSON)
    default_batch_size: int
    target_metric: float = Field(sa_type=Double)
    higher_is_better: bool
    max_epochs: int
    eta_knob: float = Field(sa_type=Double)
    beta_knob: float | None = Field(sa_type=Double)
    """None stands for infinity."""
    max_power_w: float = Field(sa_type=Double)
    max_retries: int
    num_recurrences: int
    max_concurrent_recurrences: int
    max_trial_time_s: float = Field(sa_type=Double)
    policy: str = Field(max_length=64)
    num_pruning_rounds: int
    num_explorations: int
    window_size: int
    prior_mean: float = Field(sa_type=Double)
    prior_precision: float = Field(sa_type=Double)
    seed: int = Field(sa_type=BigInteger)
    learning_rate_rule: str = Field(max_length=32)
    phase: str = Field(max_length=16, index=True)
    cost_max_power_w: float = Field(sa_type=Double)
    """Rated power that costs use: the knob, or what the first trial reported where that is 0."""
    generator_state: dict[str, Any] = Field(sa_type=JSON)
    generation: int
    """Trials of an earlier generation had another target and teach nothing."""
    data_generation: int
    recurrence_count: int
    trial_count: int
    finish_count: int
    min_recurrence_cost: float | None = Field(sa_type=Double)
    best_batch_size: int | None
    created_at: datetime = Field(sa_type=UtcDateTime)


class Recurrence(StoreTable, table=True):
    """One KFP run of a job."""

    __table_args__ = (
        UniqueConstraint("job_key", "run_id"),
        UniqueConstraint("job_key", "number"),
        Index(None, "job_key", "state"),
    )

    key: int | None = Field(default=None, primary_key=True)
    job_key: int = Field(foreign_key="job.key")
    run_id: str = Field(max_length=255)
    number: int
    state: str = Field(max_length=16)
    data_epoch: str = Field(max_length=300)
    data_generation: int
    data_missing: bool
    opened_at: datetime = Field(sa_type=UtcDateTime)
    lease_expires_at: datetime = Field(sa_type=UtcDateTime)
    closed_at: datetime | None = Field(sa_type=UtcDateTime)


class Trial(StoreTable, table=True):
    """One launch of the training code at one batch size."""

    __table_args__ = (
        UniqueConstraint("job_key", "number"),
        UniqueConstraint("recurrence_key", "slot"),
        Index(None, "job_key", "state"),
    )

    key: int | None = Field(default=None, primary_key=True)
    job_key: int = Field(foreign_key="job.key")
    recurrence_key: int = Field(foreign_key="recurrence.key")
    number: int
    slot: int
    generation: int
    batch_size: int
    purpose: str = Field(max_length=16)
    why: str = Field(sa_type=Text)
    cost_threshold: float | None = Field(sa_type=Double)
    learning_rate_factor: float = Field(sa_type=Double)
    plan: str = Field(sa_type=Text)
    """What was handed out, word for word, so that a repeated step gets the same."""
    issued_at: datetime = Field(sa_type=UtcDateTime)
    lease_expires_at: datetime = Field(sa_type=UtcDateTime)
    state: str = Field(max_length=16)
    finish_number: int | None
    """Its place in the order in which the job's trials finished: the order of the fold."""
    finished_at: datetime | None = Field(sa_type=UtcDateTime)
    reason: str = Field(sa_type=Text)
    error: str = Field(sa_type=Text)
    num_epochs: int | None
    metric: float | None = Field(sa_type=Double)
    energy_j: float | None = Field(sa_type=Double)
    time_s: float | None = Field(sa_type=Double)
    cost: float | None = Field(sa_type=Double)
    energy_source: str = Field(max_length=255)
    energy_estimated: bool
    max_power_w: float | None = Field(sa_type=Double)
    accelerator: str = Field(max_length=255)
    accelerator_count: int
    node: str = Field(max_length=255)
    attempts: int
    model_uri: str = Field(sa_type=Text)
    exit_code: int | None
    data_missing: bool


class TrialProfile(StoreTable, table=True):
    """Average power and throughput that a trial measured in one phase at one power limit."""

    __tablename__ = "profile"
    __table_args__ = (
        UniqueConstraint("trial_key", "phase", "power_limit_w"),
        Index(None, "job_key", "batch_size"),
    )

    key: int | None = Field(default=None, primary_key=True)
    job_key: int = Field(foreign_key="job.key")
    trial_key: int = Field(foreign_key="trial.key")
    batch_size: int
    phase: str = Field(max_length=16)
    power_limit_w: float | None = Field(sa_type=Double)
    average_power_w: float = Field(sa_type=Double)
    throughput_samples_per_s: float = Field(sa_type=Double)
    accelerator: str = Field(max_length=255)
    accelerator_count: int
    energy_estimated: bool


class Arm(StoreTable, table=True):
    """What was learnt of one batch size, and the posterior for people to read."""

    job_key: int = Field(foreign_key="job.key", primary_key=True)
    batch_size: int = Field(primary_key=True)
    count: int
    reached_count: int
    mean_cost: float = Field(sa_type=Double)
    sum_squared_deviations: float = Field(sa_type=Double)
    recent_costs: list[float] = Field(sa_type=JSON)
    min_cost: float | None = Field(sa_type=Double)
    explorations: list[dict[str, Any]] = Field(sa_type=JSON)
    out_of_memory: bool
    consecutive_failures: int
    posterior_mean_cost: float | None = Field(sa_type=Double)
    posterior_standard_deviation: float | None = Field(sa_type=Double)


JOB = StoreTable.metadata.tables["job"]
RECURRENCE = StoreTable.metadata.tables["recurrence"]
TRIAL = StoreTable.metadata.tables["trial"]
PROFILE = StoreTable.metadata.tables["profile"]
ARM = StoreTable.metadata.tables["arm"]
