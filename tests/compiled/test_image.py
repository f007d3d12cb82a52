"""What runs in the image that ZEUS_KFP_IMAGE names."""

import os
import subprocess
import sys

import pytest

from zeus_kfp.components.image import DEFAULT_IMAGE, image_from
from zeus_kfp.zeus_core.errors import InvalidValueError

IMAGE = "registry.example.com:5000/team/zeus-kfp:0.1.0@sha256:0123abc"
PRINT_WHERE_BOTH_WAYS_DIFFER = """
import sys
from pathlib import Path
from zeus_kfp.pipelines.client.package import SHIPPED, PipelinePackage
from zeus_kfp.pipelines.compiling import compile_all

compile_all(Path(sys.argv[1]))
for name in SHIPPED:
    text = PipelinePackage.of(name).text
    if text != Path(sys.argv[1], f"{name}.yaml").read_text():
        print(name)
"""


def test_a_pipeline_of_the_library_is_submitted_in_the_image_that_it_would_be_compiled_with(tmp_path):
    told = subprocess.run(
        [sys.executable, "-c", PRINT_WHERE_BOTH_WAYS_DIFFER, tmp_path],
        env=os.environ | {"ZEUS_KFP_IMAGE": IMAGE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == ""
    compiled = (tmp_path / "recurring_training.yaml").read_text()
    assert f"image: {IMAGE}\n" in compiled and DEFAULT_IMAGE not in compiled


@pytest.mark.parametrize("named", [{}, {"ZEUS_KFP_IMAGE": ""}, {"ZEUS_KFP_IMAGE": " \n"}])
def test_where_none_is_named_it_is_that_of_this_version(named):
    assert image_from(named) == DEFAULT_IMAGE


@pytest.mark.parametrize("name", ["a b", "a:", "-a", "/a", "a\nb", 'a"', "https://a b", "été", "A/b", "a: b", "${X}"])
def test_what_is_no_name_of_an_image_is_refused(name):
    with pytest.raises(InvalidValueError, match="ZEUS_KFP_IMAGE"):
        image_from({"ZEUS_KFP_IMAGE": name})
