"""The YAML in compiled/ and the READMEs' tables are what the code writes, and KFP takes them back."""

from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format
from kfp import components
from kfp.pipeline_spec import pipeline_spec_pb2

from zeus_kfp.components import image
from zeus_kfp.pipelines.compiling import COMPONENTS, PIPELINES, compile_all
from zeus_kfp.pipelines.golden import with_tables

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((ROOT / "compiled").rglob("*.yaml"))
READMES = {c.python_func.__name__: ROOT / "components" / c.python_func.__name__ / "README.md" for c in COMPONENTS}


@pytest.fixture(scope="module")
def compiled_again(tmp_path_factory):
    if image.IMAGE != image.DEFAULT_IMAGE:
        pytest.fail("unset ZEUS_KFP_IMAGE: the golden files are compiled with the default image")
    folder = tmp_path_factory.mktemp("compiled")
    compile_all(folder)
    return folder


def test_every_pipeline_and_component_has_a_golden_file():
    names = {path.relative_to(ROOT / "compiled").as_posix() for path in GOLDEN}
    assert names == {f"{name}.yaml" for name in PIPELINES} | {f"components/{name}.yaml" for name in READMES}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_file_is_what_compiling_writes(path, compiled_again):
    again = compiled_again / path.relative_to(ROOT / "compiled")
    assert path.read_text() == again.read_text(), "run `make golden` and look at the difference"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_file_loads_back_and_fits_the_pipeline_spec(path):
    loaded = components.load_component_from_file(str(path))
    spec = json_format.ParseDict(next(yaml.safe_load_all(path.read_text())), pipeline_spec_pb2.PipelineSpec())
    assert loaded.name.replace("-", "_") == path.stem
    assert set(loaded.component_spec.inputs) == {
        *spec.root.input_definitions.parameters,
        *spec.root.input_definitions.artifacts,
    }


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.python_func.__name__)
def test_readme_describes_the_component_as_it_is(component):
    readme = READMES[component.python_func.__name__].read_text()
    assert readme == with_tables(readme, component), "run `make golden`"


@pytest.mark.parametrize("name", READMES)
def test_metadata_names_its_component(name):
    metadata = yaml.safe_load((ROOT / "components" / name / "metadata.yaml").read_text())
    assert list(metadata)[:4] == ["name", "stability", "dependencies", "lastVerified"]
    assert metadata["name"] == name
