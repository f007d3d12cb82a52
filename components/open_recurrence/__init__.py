"""The open_recurrence component."""

from zeus_kfp.components.open_recurrence.component import open_recurrence

__all__ = ["open_recurrence"]
