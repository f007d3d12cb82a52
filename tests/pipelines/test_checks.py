"""What a pipeline is given by mistake is refused by name, before anything of it is built, sent or started."""

import logging

import numpy as np
import pytest

from zeus_kfp.pipelines.client.arguments import checked_arguments
from zeus_kfp.pipelines.client.package import PipelinePackage
from zeus_kfp.pipelines.local import run_locally
from zeus_kfp.pipelines.recurring_training import recurring_training
from zeus_kfp.pipelines.recurring_training.checks import checked_parameters
from zeus_kfp.zeus_core.errors import EntryPointError, InvalidValueError, StoreUnavailableError

KNOBS = {"job_id": "digits", "batch_sizes": [16, 32], "default_batch_size": 16, "target_metric": 0.9}


@pytest.mark.parametrize(
    ("parameter", "says"),
    [
        ({"train_cpu_limit": 2}, r"train_cpu_limit must be text, not 2 \(int\)"),
        ({"train_cpu_limit": "lots"}, "train_cpu_limit must be a quantity .* such as 500m, 2 or 4Gi, not 'lots'"),
        ({"train_memory_limit": "4GB"}, "train_memory_limit must be a quantity"),
        ({"train_memory_limit": "4 Gi"}, "train_memory_limit must be a quantity"),
        ({"train": "python -c 'unclosed"}, "train_entry_point .* can't be split into words"),
        ({"train": None, "train_entry_point": " "}, "train_entry_point ' ' is empty"),
        ({"training_image": ""}, "training_image must name an image"),
        ({"training_image": "My Image"}, "training_image must name an image"),
        ({"training_image": None}, "training_image must be text, not None"),
        ({"checkpoint_dir": 3}, "checkpoint_dir must be text"),
        ({"data_version": 20270131}, "data_version must be text, not 20270131"),
        ({"start_now": "yes"}, "start_now must be true or false, not 'yes'"),
        ({"policy": "thompson"}, "policy must be one of bayes, zeus, not 'thompson'"),
        ({"on_knob_change": "ignore"}, "on_knob_change must be one of refuse, accept, not 'ignore'"),
        ({"train_arguments": {"rate": {1}}}, "train_arguments must hold what JSON can"),
        ({"train_arguments": {"rate": float("nan")}}, "train_arguments must hold what JSON can"),
        ({"preprocess_arguments": [1]}, "preprocess_arguments must be text"),
        ({"train_arguments": {"at": "{{$.inputs}}"}}, "which KFP replaces"),
    ],
)
def test_a_value_that_its_parameter_cannot_have_is_refused_by_name(parameter, says):
    with pytest.raises(InvalidValueError, match=says):
        recurring_training(**{"train": "trainer:train"} | KNOBS | parameter)


@pytest.mark.parametrize("quantity", ["", "0", "2", "0.5", ".5", "1.", "500m", "4Gi", "4G", "1e9", "128974848"])
def test_every_quantity_of_kubernetes_is_a_limit(quantity):
    assert checked_parameters({"train_memory_limit": quantity}) == {"train_memory_limit": quantity}


@pytest.mark.parametrize("sizes", [(16, 32), range(16, 33, 16), np.array([16, 32]), [16.0, np.int64(32)]])
def test_batch_sizes_of_any_kind_of_list_reach_the_yaml(sizes):
    declared = PipelinePackage.of(recurring_training(**KNOBS | {"batch_sizes": sizes})).declared
    assert declared["batch_sizes"]["defaultValue"] == [16, 32]


def test_the_users_own_arguments_may_be_a_mapping():
    declared = PipelinePackage.of(recurring_training(train_arguments={"rate": 0.1}, **KNOBS)).declared
    assert declared["train_arguments"]["defaultValue"] == '{"rate": 0.1}'
    checked = checked_arguments(declared, {"train_entry_point": "a:b", "preprocess_arguments": {"depth": 3}})
    assert checked["preprocess_arguments"] == '{"depth": 3}'


@pytest.mark.parametrize(
    ("option", "error", "says"),
    [
        ({"name": ""}, InvalidValueError, "name must not be empty"),
        ({"name": 3}, InvalidValueError, "name must be text"),
        ({"name": "训练"}, InvalidValueError, "name must hold letters a to z or digits"),
        ({"name": "x" * 129}, InvalidValueError, "128 characters at most"),
        ({"preprocess": "prepare"}, EntryPointError, "'prepare' names no function"),
        ({"preprocess": 3}, EntryPointError, "3 is no plain function"),
        ({"fingerprint": "version"}, EntryPointError, "'version' names no function"),
        ({"fingerprint": 3}, InvalidValueError, "fingerprint must be a function or a list of paths, not 3"),
        ({"configure_train": 3}, InvalidValueError, "configure_train must be a function that takes a task, or None"),
        ({"configure_task": "gpu"}, InvalidValueError, "configure_task must be a function"),
        ({"downstream": 3}, InvalidValueError, "function or a KFP component, not 3"),
        ({"stages": [print]}, InvalidValueError, "stages must be a mapping of names to stages"),
        ({"store_secret": ""}, InvalidValueError, "store_secret must not be empty"),
        ({"store_secret": "My Secret"}, InvalidValueError, "store_secret must be the name of a secret"),
        ({"store_secret": 3}, InvalidValueError, "store_secret must be text"),
    ],
)
def test_what_the_builder_cannot_use_is_refused_by_name(option, error, says):
    with pytest.raises(error, match=says):
        recurring_training(**option)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"pipeline": recurring_training}, InvalidValueError, "is no pipeline: give one made with the Python DSL"),
        ({"pipeline": "recurring_training"}, InvalidValueError, "is no pipeline"),
        ({"parameters": {"btach_sizes": [8]}}, InvalidValueError, "did you mean 'batch_sizes'"),
        ({"parameters": {"max_epochs": "3"}}, InvalidValueError, "max_epochs must be an integer, not '3'"),
        ({"pipeline": recurring_training(**KNOBS)}, InvalidValueError, "'train_entry_point'. have no default"),
        ({"store_url": "store.db"}, InvalidValueError, "URL can't be read"),
        ({"store_url": None}, InvalidValueError, "URL can't be read"),
        ({"store_url": "sqlite:////nowhere/store.db"}, StoreUnavailableError, "check that its folder is there"),
    ],
)
def test_a_run_on_this_machine_that_could_only_fail_starts_no_step(tmp_path, caplog, options, error, says):
    usual = {
        "pipeline": recurring_training(train="trainer:train", **KNOBS),
        "store_url": f"sqlite:///{tmp_path}/store.db",
        "root": tmp_path / "artifacts",
    }
    with caplog.at_level(logging.INFO), pytest.raises(error, match=says):
        run_locally(**usual | options)
    assert "Running pipeline" not in caplog.text
    assert not list(tmp_path.glob("artifacts/*"))
