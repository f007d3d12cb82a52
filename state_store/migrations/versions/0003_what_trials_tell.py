"""Limits found, a second meter, how long steps may take, stages done, and how trials reach their target.

Revision ID: 0003
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; a turn of a stage that was taken so far counts as done.

    What was learnt is made anew: the trials teach it again once the schema is there.
    """
    for table, column in _COLUMNS:
        op.add_column(table, column)
    op.drop_table("arm")
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
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("out_of_memory", sa.Boolean(), nullable=False),
        sa.Column("consecutive_failures", sa.Integer(), nullable=False),
        sa.Column("curves", sa.JSON(), nullable=False),
        sa.Column("hopeless_in_row", sa.Integer(), nullable=False),
        sa.Column("power_limit_w", sa.Float(53), nullable=True),
        sa.Column("power_limit_accelerator", sa.String(255), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.job_id"], name=op.f("fk_arm_job_id")),
        sa.PrimaryKeyConstraint("job_id", "batch_size", name=op.f("pk_arm")),
    )
    op.get_bind().execute(_TURN.update().values(done_at=_OPENED_AT))


_COLUMNS: tuple[tuple[str, sa.Column[Any]], ...] = (
    ("trial", sa.Column("power_limits_found_w", sa.JSON(), nullable=False, server_default="{}")),
    ("trial", sa.Column("second_energy_j", sa.Float(53), nullable=True)),
    ("trial", sa.Column("second_energy_source", sa.String(255), nullable=False, server_default="")),
    ("job", sa.Column("max_step_time_s", sa.Float(53), nullable=False, server_default="86400")),
    ("stage_turn", sa.Column("done_at", sa.DateTime(timezone=True), nullable=True)),
    ("job", sa.Column("hopeless_stop", sa.Boolean(), nullable=False, server_default=sa.false())),
    ("trial", sa.Column("least_epochs", sa.Float(53), nullable=True)),
    ("trial", sa.Column("curve", sa.JSON(), nullable=False, server_default="[]")),
    # These are learnt again from the trials once the schema is there.
    ("job", sa.Column("accelerators", sa.JSON(), nullable=False, server_default="[]")),
    ("job", sa.Column("newcomer", sa.Text(), nullable=False, server_default="")),
)

_TURN = sa.table("stage_turn", sa.column("job_id"), sa.column("recurrence_number"), sa.column("done_at"))
_RECURRENCE = sa.table("recurrence", sa.column("job_id"), sa.column("number"), sa.column("opened_at"))
_OPENED_AT = (
    sa.select(_RECURRENCE.c.opened_at)
    .where(_RECURRENCE.c.job_id == _TURN.c.job_id, _RECURRENCE.c.number == _TURN.c.recurrence_number)
    .scalar_subquery()
)
