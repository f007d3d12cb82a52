"""Regenerate what the repository keeps of its components: the golden YAML and the tables in their READMEs.

Run from a checkout as `make golden`; the tests compare what it would write with what is there.
"""

import sys
from pathlib import Path
from typing import Any

import docstring_parser

from zeus_kfp.pipelines.compiling import COMPONENTS, compile_all

MARK = "<!-- inputs and outputs: generated from component.py by `make golden` -->\n"


def write_golden(checkout: Path) -> list[Path]:
    """Write the YAML under compiled/ and the READMEs' tables, and return the paths."""
    written = compile_all(checkout / "compiled")
    for component in COMPONENTS:
        readme = checkout / "components" / component.python_func.__name__ / "README.md"
        readme.write_text(with_tables(readme.read_text(encoding="utf-8"), component), encoding="utf-8")
        written.append(readme)
    return written


def with_tables(readme: str, component: Any) -> str:
    """Return a component's README with its inputs and outputs below the mark, as component.py has them."""
    spec = component.component_spec
    # KFP describes outputs by the docstring's Returns alone; those that are artifacts stand among its Args.
    described = {p.arg_name: p.description for p in docstring_parser.parse(component.python_func.__doc__).params}
    inputs: list[list[str | None]] = [
        [f"`{name}`", _type(i.type), _default(i), i.description] for name, i in spec.inputs.items()
    ]
    outputs: list[list[str | None]] = [
        [f"`{name}`", _type(o.type), o.description or described.get(name)] for name, o in (spec.outputs or {}).items()
    ]
    tables = _table(["Input", "Type", "Default", ""], inputs) + _table(["Output", "Type", ""], outputs)
    return readme.split(MARK)[0] + MARK + tables


def _table(head: list[str | None], rows: list[list[str | None]]) -> str:
    lines = ["| " + " | ".join(" ".join((cell or "").split()) for cell in row) + " |" for row in [head, *rows]]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n" + "\n".join(lines) + "\n" if rows else ""


def _type(name: str) -> str:
    return name.split("@")[0].removeprefix("system.").removeprefix("typing.")


def _default(spec: Any) -> str:
    return f"`{spec.default!r}`" if spec.optional else "required"


if __name__ == "__main__":
    for path in write_golden(Path(sys.argv[1] if len(sys.argv) > 1 else ".")):
        print(path)
