"""The power limit that each GPU had, and what a second meter saw.

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
)
