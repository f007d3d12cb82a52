"""Alembic's entry: run the migrations on the connection, and in the transaction, of whoever asked for them."""

from alembic import context

from zeus_kfp.state_store.tables import METADATA

config = context.config
context.configure(
    connection=config.attributes["connection"],
    target_metadata=METADATA,
    version_table=config.attributes["version_table"],
)
with context.begin_transaction():
    context.run_migrations()
