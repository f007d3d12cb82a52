"""Tell from a failed process's last lines whether it ran out of memory.

Only the last traceback counts, with those it was chained to: a training loop may have survived an earlier lack of
memory and failed by something else, and to call that "out of memory" would rule out a batch size for nothing.
"""

import re
from collections.abc import Sequence

LAST_LINES = 20
"""How far to look back where there is no traceback."""

_PATTERNS = (
    r"\b(CUDA|HIP|XPU|MPS backend) (error: )?out of memory",
    r"\bOutOfMemoryError\b",
    r"\bcudaErrorMemoryAllocation\b|\bhipErrorOutOfMemory\b|\bCUDA_ERROR_OUT_OF_MEMORY\b",
    r"\b(CUBLAS|HIPBLAS)_STATUS_ALLOC_FAILED\b|\bCUDNN_STATUS_ALLOC_FAILED\b",
    r"DefaultCPUAllocator: (can't allocate memory|not enough memory)",
    r"\bRESOURCE_EXHAUSTED\b.*(memory|allocat|hbm)",
    r"\bResourceExhaustedError\b|\bOOM when allocating\b",
    r"Ran out of memory in memory space",
    r"^(\S+: )?([\w.]+\.)?_?(Array)?MemoryError\b",
    r"\bstd::bad_alloc\b",
    r"Cannot allocate memory",
    r"DataLoader worker .* killed by signal: Killed",
    r"\bout of memory\b.*\b(allocat|GPU|device)",
)
_OUT_OF_MEMORY = re.compile("|".join(f"(?:{pattern})" for pattern in _PATTERNS), re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
    # torchrun adds a traceback of its own after those of its workers.
    "ChildFailedError",
)


def out_of_memory_line(lines: Sequence[str]) -> str:
    """Return the line that tells of a lack of memory, "" if there is none.

    Args:
        lines: Last lines of the process's output, oldest first.
    """
    matches = [line.strip() for line in _final_lines(lines) if _OUT_OF_MEMORY.search(line)]
    return matches[-1] if matches else ""


def _final_lines(lines: Sequence[str]) -> Sequence[str]:
    starts = [index for index, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return lines[-LAST_LINES:]
    first = starts.pop()
    while starts and any(sign in line for line in lines[starts[-1] :] for sign in _CHAINED):
        first = starts.pop()
    return lines[first:]
