"""When a recurrence starts and what it does over again; power limits; the evidence of a batch size's epochs.

Revision ID: 0002
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and tables, and take over what the recurrences so far say of them."""
    for table, column in _COLUMNS:
        op.add_column(table, column)
    op.create_table(
        "drift",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.String(255), nullable=False),
        sa.Column("reason", sa.String(255), nullable=False),
        sa.Column("value", sa.Float(53), nullable=True),
        sa.Column("signalled_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recurrence_number", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_drift_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_drift")),
    )
    op.create_index(op.f("ix_drift_job_id_recurrence_number"), "drift", ["job_id", "recurrence_number"], unique=False)
    op.create_table(
        "stage_turn",
        sa.Column("job_id", sa.String(255), nullable=False),
        sa.Column("stage", sa.String(255), nullable=False),
        sa.Column("recurrence_number", sa.Integer(), nullable=False),
        sa.Column("data_epoch", sa.String(300), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_stage_turn_job_id")),
        sa.PrimaryKeyConstraint("job_id", "stage", "recurrence_number", name=op.f("pk_stage_turn")),
    )
    _take_over()


_COLUMNS: tuple[tuple[str, sa.Column[Any]], ...] = (
    ("job", sa.Column("max_concurrent_recurrences_per_user", sa.Integer(), nullable=False, server_default="0")),
    ("job", sa.Column("period_s", sa.Float(53), nullable=False, server_default="0")),
    ("job", sa.Column("preprocess_every", sa.Integer(), nullable=False, server_default="0")),
    ("job", sa.Column("period_began_at", sa.DateTime(timezone=True), nullable=True)),
    ("job", sa.Column("clock_back_at", sa.DateTime(timezone=True), nullable=True)),
    ("job", sa.Column("data_version", sa.String(255), nullable=False, server_default="")),
    ("job", sa.Column("data_began_number", sa.Integer(), nullable=False, server_default="0")),
    ("job", sa.Column("ended_by_hand", sa.Boolean(), nullable=False, server_default=sa.false())),
    ("job", sa.Column("counted_from", sa.Integer(), nullable=False, server_default="0")),
    ("recurrence", sa.Column("why", sa.Text(), nullable=False, server_default="")),
    ("job", sa.Column("power_objective", sa.String(64), nullable=False, server_default="cost")),
    ("trial", sa.Column("power_limiter", sa.String(255), nullable=False, server_default="")),
    ("trial", sa.Column("power_limit_found_w", sa.Float(53), nullable=True)),
    # These are learnt again from the trials once the schema is there.
    ("arm", sa.Column("power_limit_w", sa.Float(53), nullable=True)),
    ("arm", sa.Column("power_limit_accelerator", sa.String(255), nullable=False, server_default="")),
    ("arm", sa.Column("evidence", sa.JSON(), nullable=False, server_default="{}")),
)

_JOB = sa.table(
    "job",
    sa.column("job_id"),
    sa.column("recurrence_count"),
    sa.column("period_began_at"),
    sa.column("data_version"),
    sa.column("data_began_number"),
)
_RECURRENCE = sa.table(
    "recurrence", sa.column("job_id"), sa.column("number"), sa.column("data_epoch"), sa.column("opened_at")
)


def _take_over() -> None:
    """Let each job go on from its latest recurrence: its period has begun with it, and its data is not made again."""
    connection = op.get_bind()
    latest = sa.select(_RECURRENCE).join(
        _JOB, (_JOB.c.job_id == _RECURRENCE.c.job_id) & (_JOB.c.recurrence_count == _RECURRENCE.c.number)
    )
    for row in list(connection.execute(latest)):
        values = {
            "period_began_at": row.opened_at,
            # A data epoch is a version and a generation.
            "data_version": row.data_epoch.rpartition("-")[0],
            "data_began_number": row.number,
        }
        connection.execute(_JOB.update().where(_JOB.c.job_id == row.job_id).values(**values))
