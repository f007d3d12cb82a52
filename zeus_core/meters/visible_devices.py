"""Which GPUs a value of CUDA_VISIBLE_DEVICES names."""

from collections.abc import Sequence
from itertools import dropwhile

_ON_PURPOSE = ("", "-1", "none", "void", "nodevfiles")
"""The last three are what container runtimes and batch systems write."""


def visible_devices(value: str | None, uuids: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the GPUs that CUDA would show this process, each once.

    As CUDA does, the list ends at its first entry that names no GPU. A MIG device stands for the GPU that it
    is a part of, since only whole GPUs count energy.

    Args:
        value: The variable's value: indices, UUIDs or their beginnings, MIG-GPU-<uuid>/<gi>/<ci>; None if unset,
            which shows every GPU. A MIG-<uuid> needs its GPU's UUID put in its place by the caller.
        uuids: UUID of every GPU, by index ("GPU-…").
    """
    if value is None:
        return tuple(range(len(uuids)))
    chosen: list[int] = []
    for entry in value.split(","):
        index = _index(entry.strip(), uuids)
        if index is None:
            break
        if index not in chosen:
            chosen.append(index)
    return tuple(chosen)


def left_out(value: str | None, uuids: Sequence[str]) -> tuple[str, ...]:
    """Return the entries that CUDA leaves out: the first that names no GPU, and all after it.

    Those that name none on purpose are not among them.
    """
    entries = () if value is None else tuple(entry.strip() for entry in value.split(","))
    rest = dropwhile(lambda entry: _index(entry, uuids) is not None, entries)
    return tuple(entry for entry in rest if entry.lower() not in _ON_PURPOSE)


def names_none(value: str | None) -> bool:
    """Return whether a value of CUDA_VISIBLE_DEVICES is one by which people hide every GPU on purpose.

    Whatever else CUDA can't make sense of hides them too, but by mistake.
    """
    return value is not None and value.split(",")[0].strip().lower() in _ON_PURPOSE


def _index(entry: str, uuids: Sequence[str]) -> int | None:
    if entry.isascii() and entry.isdigit():
        return int(entry) if int(entry) < len(uuids) else None
    uuid = entry.removeprefix("MIG-").split("/")[0]
    if not uuid.startswith("GPU-"):
        return None
    matches = [index for index, known in enumerate(uuids) if known.startswith(uuid)]
    return matches[0] if len(matches) == 1 else None
