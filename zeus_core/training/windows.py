"""Energy and time of stretches of code that people name; they may nest and overlap in any way."""

from dataclasses import dataclass

from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.training.instrument import Instrument, Reading, Spent
from zeus_kfp.zeus_core.validation import text


@dataclass(frozen=True, slots=True)
class Window:
    """What a window took.

    Attributes:
        name: What it is called.
        energy_j: Energy in J; None if it can't be known.
        time_s: Time in s.
        energy_source: Name of the meter.
        is_trusted: Whether it lasted long enough for the meter, and its energy is measured, not estimated.
    """

    name: str
    energy_j: float | None
    time_s: float
    energy_source: str
    is_trusted: bool


class Windows:
    """Windows under way, by name."""

    def __init__(self, instrument: Instrument) -> None:
        """Start with none."""
        self._instrument = instrument
        self._open: dict[str, Reading] = {}

    def begin(self, name: str) -> None:
        """Open a window.

        Raises:
            InvalidValueError: If one of that name is open, or the name is none.
        """
        if text("name of a window", name) in self._open:
            raise InvalidValueError(f"the window {name!r} is open already: end it first, or give this one another name")
        self._open[name] = self._instrument.read()

    def end(self, name: str) -> Window:
        """Close a window and return what it took.

        Raises:
            InvalidValueError: If none of that name is open.
        """
        if name not in self._open:
            raise InvalidValueError(f"there is no open window {name!r}; open are {sorted(self._open)}")
        spent = self._open[name].until(self._instrument.read())
        del self._open[name]
        return self._window(name, spent)

    def _window(self, name: str, spent: Spent) -> Window:
        meter = self._instrument.meter
        is_long = spent.time_s >= meter.shortest_window_s
        # Whatever ran took some energy: where a counter hasn't moved, it was not renewed since, or never is.
        energy_j = spent.energy_j or None
        is_trusted = is_long and energy_j is not None and not meter.estimated
        return Window(name, energy_j, spent.time_s, meter.name, is_trusted)
