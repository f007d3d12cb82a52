"""Write files so that a reader, or whoever comes after a crash, never finds half of one."""

import os
from pathlib import Path


def write_atomically(path: str | Path, content: str) -> None:
    """Write text to a file that is either the old one or the whole new one, whatever happens.

    Raises:
        OSError: If the folder can't be written to.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    draft.write_text(content, encoding="utf-8")
    os.replace(draft, path)
