"""Run the user's preprocessing and make sure that it wrote something."""

from pathlib import Path

from zeus_kfp.components.arguments import parse_arguments
from zeus_kfp.components.user_function import user_function
from zeus_kfp.zeus_core.errors import EntryPointError

NO_PREPROCESSING = "no preprocessing was asked for\n"


def preprocess(output_path: str, *, entry_point: str, entry_source: str, arguments: str) -> None:
    """Call the user's function with the path to write at; without a function, write a line saying so.

    Args:
        output_path: Where the data set goes, a file or a folder.
        entry_point: module:function, or a function's name where the source is given; "" for none.
        entry_source: Source text that defines the function, or "".
        arguments: JSON object of keyword arguments.

    Raises:
        EntryPointError: If the function can't be found, or wrote nothing.
        InvalidValueError: If the arguments are no JSON object.
    """
    values = parse_arguments("preprocess_arguments", arguments)
    path = Path(output_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not entry_point:
        # An object store keeps no empty folder, and a missing data set is taken for a lost one.
        path.write_text(NO_PREPROCESSING, encoding="utf-8")
        return
    user_function("preprocessing", entry_point, entry_source)(str(path), **values)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        raise EntryPointError(f"{entry_point} wrote nothing at its output_path {path}: write a file or a folder there")
