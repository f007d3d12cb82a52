"""The select_winner component."""

from zeus_kfp.components.select_winner.component import select_winner

__all__ = ["select_winner"]
