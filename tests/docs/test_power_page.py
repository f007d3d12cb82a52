"""The page on power says what the code does."""

import re
from pathlib import Path

import pytest
import yaml
from kfp.compiler import Compiler

from zeus_kfp.zeus_core.power.options import ProfilingOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "power.md").read_text(encoding="utf-8")
SOURCES = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "zeus_core").rglob("*.py"))
NAMED = sorted(set(re.findall(r"ZEUS(?:D|_KFP)_[A-Z_]+", PAGE)))


@pytest.mark.parametrize("name", NAMED)
def test_every_variable_that_is_named_is_read(name):
    option = name.removeprefix("ZEUS_KFP_POWER_").lower()
    assert f'"{name}"' in SOURCES or hasattr(ProfilingOptions(), option)


def test_every_option_is_named():
    options = {f"ZEUS_KFP_POWER_{name.upper()}" for name in ProfilingOptions.__slots__}
    assert options <= set(NAMED)


@pytest.mark.parametrize("name", re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE))
def test_every_meter_that_is_named_exists(name):
    assert f'"{name}"' in SOURCES


def test_the_defaults_are_those_of_the_code():
    defaults = ProfilingOptions()
    assert f"| `{defaults.warmup_steps}`, `{defaults.profile_steps}` |" in PAGE
    assert f"| `{defaults.step_w:g}` |" in PAGE
    assert defaults.objective == ""
    assert "| the job's `power_objective` |" in PAGE


def test_an_option_that_is_set_as_the_page_says_reaches_every_training_task(tmp_path):
    (example,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "configure_train" in code)
    found = {}
    exec(example, found)
    Compiler().compile(found["pipeline"], str(tmp_path / "pipeline.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "pipeline.yaml").read_text()))
    containers = {name: task["container"] for name, task in spec["deploymentSpec"]["executors"].items()}
    step_w = {name: env["value"] for name, env in variables(containers) if env["name"] == "ZEUS_KFP_POWER_STEP_W"}
    training = [name for name in containers if name.startswith("exec-train-with-profiling")]
    assert step_w == dict.fromkeys(training, "10")
    assert training


def variables(containers):
    return [(name, env) for name, container in containers.items() for env in container.get("env", [])]
