"""Every command that a page, a manifest or a message names is there, with the options that it is named with."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from zeus_kfp.pipelines.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for pattern in ("*.md", "docs/*.md", "components/*/README.md", "notebooks/*.ipynb", "deploy/**/*.yaml")
    for path in ROOT.glob(pattern)
]
SOURCES = [
    path for room in ("zeus_core", "state_store", "components", "pipelines") for path in (ROOT / room).rglob("*.py")
]
COMMAND = get_command(app)


def named(path):
    """Return what follows zeus-kfp between two backticks, or at the beginning of a block's line."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    if path.suffix == ".py":
        text = re.sub(r'"\n\s*f?"', "", text)
    found = re.findall(r"`zeus-kfp\s+([^`]+)`", text)
    blocks = "\n".join(re.findall(r"```\w*\n(.*?)```", text, re.DOTALL))
    return found + re.findall(r"^zeus-kfp (.+)$", blocks, re.MULTILINE)


NAMED = sorted({(str(path.relative_to(ROOT)), typed) for path in PAGES + SOURCES for typed in named(path)})


def test_the_pages_and_messages_are_looked_through():
    files = {file for file, _ in NAMED}
    assert {"README.md", "docs/cluster.md", "docs/store.md", "docs/knobs.md", "state_store/gating.py"} <= files
    assert len(NAMED) > 40


@pytest.mark.parametrize(("file", "typed"), NAMED)
def test_a_command_that_is_named_is_there_with_its_options(file, typed):
    words = typed.split("#")[0].split()
    for first in words[0].split("|"):
        command, rest = COMMAND, [first, *words[1:]]
        while rest and hasattr(command, "commands") and not rest[0].startswith(("-", "…")):
            assert rest[0] in command.commands, typed
            command = command.commands[rest.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
        options = {word.split("=")[0] for word in rest if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)}
        assert options <= known | {"--help"}, typed
