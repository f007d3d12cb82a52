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
    """Add the columns; a turn of a stage that was taken so far counts as done."""
    for table, column in _COLUMNS:
        op.add_column(table, column)
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
    ("arm", sa.Column("curves", sa.JSON(), nullable=False, server_default="[]")),
    ("arm", sa.Column("hopeless_in_row", sa.Integer(), nullable=False, server_default="0")),
)

_TURN = sa.table("stage_turn", sa.column("job_id"), sa.column("recurrence_number"), sa.column("done_at"))
_RECURRENCE = sa.table("recurrence", sa.column("job_id"), sa.column("number"), sa.column("opened_at"))
_OPENED_AT = (
    sa.select(_RECURRENCE.c.opened_at)
    .where(_RECURRENCE.c.job_id == _TURN.c.job_id, _RECURRENCE.c.number == _TURN.c.recurrence_number)
    .scalar_subquery()
)
