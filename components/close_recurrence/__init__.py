"""The close_recurrence component."""

from zeus_kfp.components.close_recurrence.component import close_recurrence

__all__ = ["close_recurrence"]
