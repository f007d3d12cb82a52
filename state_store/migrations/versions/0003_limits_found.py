"""The power limit that each GPU had; what a second meter saw; how trials reach their target, and which were hopeless.

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
    """Add the columns."""
    for table, column in _COLUMNS:
        op.add_column(table, column)


_COLUMNS: tuple[tuple[str, sa.Column[Any]], ...] = (
    ("trial", sa.Column("power_limits_found_w", sa.JSON(), nullable=False, server_default="{}")),
    ("trial", sa.Column("second_energy_j", sa.Float(53), nullable=True)),
    ("trial", sa.Column("second_energy_source", sa.String(255), nullable=False, server_default="")),
    ("job", sa.Column("hopeless_stop", sa.Boolean(), nullable=False, server_default=sa.true())),
    ("trial", sa.Column("least_epochs", sa.Float(53), nullable=True)),
    ("trial", sa.Column("curve", sa.JSON(), nullable=False, server_default="[]")),
    # These are learnt again from the trials once the schema is there.
    ("job", sa.Column("accelerators", sa.JSON(), nullable=False, server_default="[]")),
    ("job", sa.Column("newcomer", sa.Text(), nullable=False, server_default="")),
    ("arm", sa.Column("curves", sa.JSON(), nullable=False, server_default="[]")),
    ("arm", sa.Column("hopeless_in_row", sa.Integer(), nullable=False, server_default="0")),
)
