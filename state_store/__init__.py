"""The store: what outlives a recurrence, in SQLite or PostgreSQL."""

from zeus_kfp.state_store.store import StateStore

__all__ = ["StateStore"]
