"""Options and output that the commands talking about pipelines share."""

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zeus_kfp.zeus_core.errors import InvalidValueError

if TYPE_CHECKING:
    from zeus_kfp.pipelines.client import RecurringTrainingClient

RUN_FAILED = 3
"""Exit code where a run ended badly; 1 is any other error, 2 a command line that can't be read."""

STILL_RUNNING = 4
"""Exit code where something is not over yet: a wait whose time is up, or a schedule that has a live run."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

CLUSTER_HELP = (
    "The cluster is found by --host or KF_PIPELINES_ENDPOINT, and logged in to by ZEUS_KFP_TOKEN, ZEUS_KFP_TOKEN_FILE "
    "or ZEUS_KFP_COOKIES; ZEUS_KFP_CA_CERT, ZEUS_KFP_PROXY and ZEUS_KFP_KUBE_CONTEXT go to kfp too."
)

Pipeline = Annotated[
    str,
    typer.Argument(help="A compiled .yaml, module:name of a pipeline, recurring_training, or recurring_training_gpu."),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        "-p",
        metavar="NAME=VALUE",
        help="A parameter; lists and mappings as JSON: -p 'batch_sizes=[16, 32]'.",
    ),
]
ParametersFile = Annotated[
    Path | None, typer.Option("--params", help="YAML or JSON file of parameters; --param goes before it.")
]
Host = Annotated[
    str | None, typer.Option(help="Address of the KFP API.", envvar="KF_PIPELINES_ENDPOINT", show_envvar=True)
]
Namespace = Annotated[
    str | None,
    typer.Option(help="Namespace, in a multi-user installation.", envvar="ZEUS_KFP_NAMESPACE", show_envvar=True),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Experiment = Annotated[str, typer.Option(help="KFP's experiment that groups the runs.")]
ServiceAccount = Annotated[str | None, typer.Option(help="Kubernetes service account of the runs' pods.")]


def arguments_of(declared: Mapping[str, Any], file: Path | None, assignments: list[str] | None) -> dict[str, Any]:
    """Return the arguments that a file and a command line give.

    Raises:
        InvalidValueError: If the file holds no mapping, or one of them can't be read.
    """
    from zeus_kfp.pipelines.client.arguments import read_arguments

    return _mapping(file) | read_arguments(declared, assignments or [])


@contextlib.contextmanager
def cluster(host: str | None, namespace: str | None) -> Iterator["RecurringTrainingClient"]:
    """Give a client; what kfp prints meanwhile goes to standard error, so that standard output is ours alone."""
    from zeus_kfp.pipelines.client import RecurringTrainingClient

    with contextlib.redirect_stdout(sys.stderr):
        yield RecurringTrainingClient(host=host, namespace=namespace)


def show(value: Any, as_json: bool, text: str) -> None:
    """Print a value as JSON, or as text."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2) if as_json else text)


def _mapping(file: Path | None) -> dict[str, Any]:
    import yaml

    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
        held, tree = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidValueError(f"the parameters {file} can't be read: {error}") from None
    if not isinstance(held, dict) or tree is None or not all(isinstance(name, str) for name in held):
        raise InvalidValueError(f"{file} holds no mapping of parameters by name")
    # YAML would take the last of them without a word.
    names = Counter(key.value for key, _ in tree.value)
    if twice := [name for name, count in names.items() if count > 1]:
        raise InvalidValueError(f"{file} gives the parameters {twice} more than once: keep one of each")
    return held
