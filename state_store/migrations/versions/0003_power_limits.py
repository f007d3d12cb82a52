"""The power limit found best for a batch size, what it is chosen by, and what a trial found and set.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; a limit is known once a later trial has profiled."""
    for table, column in _COLUMNS:
        op.add_column(table, column)


_COLUMNS = (
    ("job", sa.Column("power_objective", sa.String(64), nullable=False, server_default="cost")),
    ("trial", sa.Column("power_limiter", sa.String(255), nullable=False, server_default="")),
    ("trial", sa.Column("power_limit_found_w", sa.Float(53), nullable=True)),
    ("arm", sa.Column("power_limit_w", sa.Float(53), nullable=True)),
    ("arm", sa.Column("power_limit_accelerator", sa.String(255), nullable=False, server_default="")),
)
