"""Each command teaches how it is typed, and the shell completes it."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from zeus_kfp.pipelines.cli import app


def commands(command, path=()):
    if hasattr(command, "commands"):
        for name, sub in command.commands.items():
            yield from commands(sub, (*path, name))
    else:
        yield path, command


EVERY = dict(commands(get_command(app)))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_the_help_of_a_command_has_an_example_that_can_be_typed(path):
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if line.strip().startswith("Example: ")]
    words = shlex.split(line.split("Example: ")[1])
    assert tuple(words[: len(path) + 1]) == ("zeus-kfp", *path)
    EVERY[path].make_context(path[-1], words[len(path) + 1 :])


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_every_argument_and_option_says_what_it_is(path):
    for parameter in EVERY[path].params:
        assert getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize("group", sorted({path[0] for path in EVERY if len(path) > 1}))
def test_a_group_alone_shows_its_commands(group):
    result = CliRunner().invoke(app, [group])
    assert all(path[1] in result.output for path in EVERY if path[0] == group)


@pytest.mark.parametrize("words", [["nothing"], ["schedule", "nothing"], ["jobs", "list", "--nothing"], ["schedule"]])
def test_a_command_line_that_cannot_be_read_has_its_own_exit_code(words):
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("zeus-kfp sch", {"schedule"}),
        ("zeus-kfp schedule re", {"resume"}),
        ("zeus-kfp schedule create nightly --ser", {"--service-account"}),
        ("zeus-kfp jobs list --phase comp", {"completed"}),
    ],
)
def test_bash_completes_commands_options_and_values(tmp_path, typed, offered):
    """The script that the command installs is sourced by a real bash, which then asks for what would come next."""
    script = Path(sys.executable).parent / "zeus-kfp"
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{script.parent}:{os.environ['PATH']}"}
    words = shlex.split(typed)
    program = f"""eval "$(zeus-kfp --show-completion)"
COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
handler=$(complete -p zeus-kfp | sed "s/.*-F \\([^ ]*\\).*/\\1/")
$handler zeus-kfp {words[-1]} {words[-2]}
printf "%s\\n" "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "--norc", "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == offered
