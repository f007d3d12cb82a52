"""Component packages that make their component only when it is asked for.

A component's pod imports the modules beside component.py, and there KFP's `dsl.component` does not exist.
"""

import importlib
from collections.abc import Callable
from typing import Any


def component_of(package: str) -> Callable[[str], Any]:
    """Return a module's __getattr__ that finds the package's component, named like the package itself."""
    name = package.rpartition(".")[2]

    def getattribute(asked: str) -> Any:
        if asked != name:
            raise AttributeError(f"module {package!r} has no attribute {asked!r}")
        return getattr(importlib.import_module(f"{package}.component"), name)

    return getattribute
