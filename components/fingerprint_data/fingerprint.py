"""The version of raw data: what the user's function says, or the hash of files."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from zeus_kfp.components.arguments import parse_arguments
from zeus_kfp.components.user_function import user_function
from zeus_kfp.zeus_core.errors import EntryPointError

LONGEST = 64
"""Characters of a version; a longer one is told by its hash, which has as many."""


def fingerprint(entry_point: str, *, entry_source: str, arguments: str) -> str:
    """Return the version that the user's function tells.

    Args:
        entry_point: module:function, or a function's name where the source is given.
        entry_source: Source text that defines the function, or "".
        arguments: JSON object of keyword arguments.

    Raises:
        EntryPointError: If the function can't be found, or tells no version.
        InvalidValueError: If the arguments are no JSON object.
    """
    values = parse_arguments("fingerprint arguments", arguments)
    told = user_function("a fingerprint", entry_point, entry_source)(**values)
    if isinstance(told, bool) or not isinstance(told, str | int) or told == "":
        raise EntryPointError(
            f"{entry_point} returned {told!r}: a fingerprint of data must be text that is not empty, or a whole number"
        )
    version = str(told)
    return version if len(version) <= LONGEST else hashlib.sha256(version.encode()).hexdigest()


def fingerprint_of_paths(paths: Sequence[str]) -> str:
    """Return a hash of the content of files and folders, with the names of what is in the folders.

    Args:
        paths: Files and folders that the step can read, such as on a volume; their order counts.

    Raises:
        EntryPointError: If one is not there, or can't be read.
    """
    digest = hashlib.sha256()
    for place, path in enumerate(paths):
        try:
            for name, file in _files(Path(path)):
                _put(digest, f"{place}/{name}".encode(errors="surrogateescape"))
                with file.open("rb") as stream:
                    _put(digest, hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise EntryPointError(
                f"the data {path} can't be read ({error}): give files or folders that every step can read, such as on "
                "a volume that configure_task mounts, or a function of your own for what lies elsewhere"
            ) from None
    return digest.hexdigest()


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a folder under their names in it, or the file itself."""
    if not path.is_dir():
        yield "", path
        return
    yield from sorted((file.relative_to(path).as_posix(), file) for file in path.rglob("*") if file.is_file())


def _put(digest: "hashlib._Hash", value: bytes) -> None:
    # With its length before it, so that no two lists of values give the same bytes.
    digest.update(len(value).to_bytes(8, "big") + value)
