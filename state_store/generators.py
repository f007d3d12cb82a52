"""A policy's random generator, as its job keeps it between suggestions."""

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # imported late: most steps draw nothing, and need not wait for it
    import numpy as np


def seeded_state(seed: int) -> dict[str, Any]:
    """Return the state of a new generator."""
    import numpy as np

    return dict(np.random.default_rng(seed).bit_generator.state)


def generator_at(state: dict[str, Any]) -> "np.random.Generator":
    """Return the generator that goes on from a state."""
    import numpy as np

    bits = np.random.PCG64(0)
    bits.state = cast(Any, state)  # the very dict that numpy gave us, back from the database
    return np.random.Generator(bits)


def state_of(generator: "np.random.Generator") -> dict[str, Any]:
    """Return where a generator stands."""
    return dict(generator.bit_generator.state)
