"""Arguments are checked against the pipeline before the cluster sees them."""

import sys

import pytest

from zeus_kfp.pipelines.client.arguments import checked_arguments, read_arguments
from zeus_kfp.pipelines.client.package import PipelinePackage
from zeus_kfp.zeus_core.errors import InvalidValueError

KNOBS = {
    "job_id": "digits",
    "train_entry_point": "trainer:train",
    "batch_sizes": [16, 32],
    "default_batch_size": 16,
    "target_metric": 0.9,
}


@pytest.fixture(scope="module")
def declared():
    return PipelinePackage.of("recurring_training").declared


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batchsizes": [8]}, "did you mean 'batch_sizes'"),
        ({"🙂": 1}, "no parameter '🙂': it has"),
        ({"max_epochs": "7"}, "max_epochs must be an integer, not '7'"),
        ({"max_epochs": True}, "max_epochs must be an integer, not True"),
        ({"max_epochs": 7.5}, "max_epochs must be an integer, not 7.5"),
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"target_metric": float("nan")}, "target_metric = nan can't be sent as JSON"),
        ({"higher_is_better": 1}, "must be true or false"),
        ({"batch_sizes": "16,32"}, "must be a list, such as"),
        ({"batch_sizes": []}, "batch_sizes"),
        ({"batch_sizes": [16, {1}]}, "can't be sent as JSON"),
        ({"default_batch_size": 17}, "17 is not among batch_sizes"),
        ({"eta_knob": 1.5}, "eta_knob must be at most 1"),
        ({"seed": 2**60}, "too large"),
        ({"train_arguments": "[1]"}, "train_arguments"),
        ({"job_id": "{{$.pipeline_job_uuid}}"}, "which KFP replaces"),
        ({"job_id": 3}, "job_id must be text, not 3"),
        ({"job_id": None}, "job_id must be text, not None"),
    ],
)
def test_an_argument_that_no_run_could_use_is_refused(declared, change, says):
    with pytest.raises(InvalidValueError, match=says):
        checked_arguments(declared, KNOBS | change)


def test_missing_arguments_are_named_together(declared):
    with pytest.raises(InvalidValueError, match="'batch_sizes', 'default_batch_size', 'target_metric'"):
        checked_arguments(declared, {"job_id": "digits", "train_entry_point": "trainer:train"})


def test_arguments_of_a_command_line_take_the_types_that_the_pipeline_declares(declared):
    given = ["job_id=7", "batch_sizes=[16, 32]", "max_epochs=5", "eta_knob=1", "higher_is_better=false", "user=a=b"]
    assert read_arguments(declared, given) == {
        "job_id": "7",
        "batch_sizes": [16, 32],
        "max_epochs": 5,
        "eta_knob": 1,
        "higher_is_better": False,
        "user": "a=b",
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["max_epochs"], "no name=value"),
        (["=5"], "no name=value"),
        (["max_epochs=5", "max_epochs=6"], "given twice"),
        (["max_epochs=many"], "must be an integer, not 'many'"),
        (["batch_sizes=16,32"], "must be a list, such as"),
        (["higher_is_better=yes"], "true or false"),
        (["eta_knob=NaN"], "can't be sent"),
    ],
)
def test_assignments_that_cannot_be_read_are_refused(declared, given, says):
    with pytest.raises(InvalidValueError, match=says):
        read_arguments(declared, given)


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "no compiled KFP pipeline"), ("a: [", "no compiled"), ("- 1", "no compiled"), ("root: {}", "no compiled")],
)
def test_a_file_that_holds_no_pipeline_is_refused(tmp_path, content, says):
    path = tmp_path / "pipeline.yaml"
    path.write_text(content)
    with pytest.raises(InvalidValueError, match=says):
        PipelinePackage.of(path)


def test_a_pipeline_of_a_module_in_the_working_directory_is_found(tmp_path, monkeypatch):
    (tmp_path / "my_pipelines.py").write_text(
        "from zeus_kfp.pipelines.recurring_training import recurring_training\n"
        "nightly = recurring_training(train='trainer:train', name='mine')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert PipelinePackage.of("my_pipelines:nightly").name == "mine"
    with pytest.raises(InvalidValueError, match="my_pipelines:hourly can't be found"):
        PipelinePackage.of("my_pipelines:hourly")
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize("pipeline", ["no_such_module:x", "math:pi", "nowhere.yaml", "recurring", "/etc", 7, None])
def test_what_is_no_pipeline_is_refused(pipeline):
    with pytest.raises(InvalidValueError, match="pipeline"):
        PipelinePackage.of(pipeline)


def test_a_type_that_takes_no_value_is_named():
    with pytest.raises(InvalidValueError, match="status is of KFP's type TASK_FINAL_STATUS"):
        checked_arguments({"status": {"parameterType": "TASK_FINAL_STATUS"}}, {"status": 1})


@pytest.mark.parametrize("root", ["3", "[]", "{inputDefinitions: 3}", "{inputDefinitions: {parameters: [3]}}"])
def test_yaml_that_holds_something_else_than_a_pipeline_is_refused(root):
    with pytest.raises(InvalidValueError, match=r"x\.yaml holds no compiled KFP pipeline"):
        PipelinePackage.of_text(f"pipelineInfo: {{name: x}}\nroot: {root}", "x.yaml")
