"""The first schema: jobs, recurrences, trials, profiles and arms.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "job",
        sa.Column("job_id", sa.String(255), nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("batch_sizes", sa.JSON(), nullable=False),
        sa.Column("default_batch_size", sa.Integer(), nullable=False),
        sa.Column("target_metric", sa.Float(53), nullable=False),
        sa.Column("higher_is_better", sa.Boolean(), nullable=False),
        sa.Column("max_epochs", sa.Integer(), nullable=False),
        sa.Column("eta_knob", sa.Float(53), nullable=False),
        sa.Column("beta_knob", sa.Float(53), nullable=True),
        sa.Column("max_power_w", sa.Float(53), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("num_recurrences", sa.Integer(), nullable=False),
        sa.Column("max_concurrent_recurrences", sa.Integer(), nullable=False),
        sa.Column("max_trial_time_s", sa.Float(53), nullable=False),
        sa.Column("policy", sa.String(64), nullable=False),
        sa.Column("num_pruning_rounds", sa.Integer(), nullable=False),
        sa.Column("num_explorations", sa.Integer(), nullable=False),
        sa.Column("window_size", sa.Integer(), nullable=False),
        sa.Column("prior_mean", sa.Float(53), nullable=False),
        sa.Column("prior_precision", sa.Float(53), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("learning_rate_rule", sa.String(32), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("data_generation", sa.Integer(), nullable=False),
        sa.Column("rated_power_w", sa.Float(53), nullable=False),
        sa.Column("min_recurrence_cost", sa.Float(53), nullable=True),
        sa.Column("best_batch_size", sa.Integer(), nullable=True),
        sa.Column("recurrence_count", sa.Integer(), nullable=False),
        sa.Column("trial_count", sa.Integer(), nullable=False),
        sa.Column("report_count", sa.Integer(), nullable=False),
        sa.Column("generator_state", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job")),
    )
    op.create_index(op.f("ix_job_phase"), "job", ["phase"], unique=False)
    op.create_index(op.f("ix_job_user"), "job", ["user"], unique=False)
    op.create_table(
        "arm",
        sa.Column("job_id", sa.String(255), nullable=False),
        sa.Column("batch_size", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("reached_count", sa.Integer(), nullable=False),
        sa.Column("mean_cost", sa.Float(53), nullable=False),
        sa.Column("sum_squared_deviations", sa.Float(53), nullable=False),
        sa.Column("recent_costs", sa.JSON(), nullable=False),
        sa.Column("min_cost", sa.Float(53), nullable=True),
        sa.Column("explorations", sa.JSON(), nullable=False),
        sa.Column("out_of_memory", sa.Boolean(), nullable=False),
        sa.Column("consecutive_failures", sa.Integer(), nullable=False),
        sa.Column("posterior_mean_cost", sa.Float(53), nullable=True),
        sa.Column("posterior_standard_deviation", sa.Float(53), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_arm_job_id")),
        sa.PrimaryKeyConstraint("job_id", "batch_size", name=op.f("pk_arm")),
    )
    op.create_table(
        "recurrence",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("data_epoch", sa.String(300), nullable=False),
        sa.Column("data_missing", sa.Boolean(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_recurrence_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recurrence")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_recurrence_job_id_number")),
        sa.UniqueConstraint("job_id", "run_id", name=op.f("uq_recurrence_job_id_run_id")),
    )
    op.create_index(op.f("ix_recurrence_job_id_state"), "recurrence", ["job_id", "state"], unique=False)
    op.create_table(
        "trial",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(255), nullable=False),
        sa.Column("recurrence_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("batch_size", sa.Integer(), nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("cost_threshold", sa.Float(53), nullable=True),
        sa.Column("learning_rate_factor", sa.Float(53), nullable=False),
        sa.Column("power_limit_w", sa.Float(53), nullable=True),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("report_number", sa.Integer(), nullable=True),
        sa.Column("report_digest", sa.String(64), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("num_epochs", sa.Integer(), nullable=True),
        sa.Column("metric", sa.Float(53), nullable=True),
        sa.Column("energy_j", sa.Float(53), nullable=True),
        sa.Column("time_s", sa.Float(53), nullable=True),
        sa.Column("cost", sa.Float(53), nullable=True),
        sa.Column("energy_source", sa.String(255), nullable=False),
        sa.Column("energy_estimated", sa.Boolean(), nullable=False),
        sa.Column("max_power_w", sa.Float(53), nullable=True),
        sa.Column("accelerator", sa.String(255), nullable=False),
        sa.Column("accelerator_count", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(255), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("model_uri", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("data_missing", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_trial_job_id")),
        sa.ForeignKeyConstraint(["recurrence_id"], ["recurrence.id"], name=op.f("fk_trial_recurrence_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_trial_job_id_number")),
        sa.UniqueConstraint("recurrence_id", "slot", name=op.f("uq_trial_recurrence_id_slot")),
    )
    op.create_index(op.f("ix_trial_job_id_state"), "trial", ["job_id", "state"], unique=False)
    op.create_table(
        "profile",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(255), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("batch_size", sa.Integer(), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("power_limit_w", sa.Float(53), nullable=True),
        sa.Column("average_power_w", sa.Float(53), nullable=False),
        sa.Column("throughput_samples_per_s", sa.Float(53), nullable=False),
        sa.Column("accelerator", sa.String(255), nullable=False),
        sa.Column("accelerator_count", sa.Integer(), nullable=False),
        sa.Column("energy_estimated", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_profile_job_id")),
        sa.ForeignKeyConstraint(["trial_id"], ["trial.id"], name=op.f("fk_profile_trial_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile")),
        sa.UniqueConstraint("trial_id", "phase", "power_limit_w", name=op.f("uq_profile_trial_id_phase_power_limit_w")),
    )
    op.create_index(op.f("ix_profile_job_id"), "profile", ["job_id"], unique=False)
