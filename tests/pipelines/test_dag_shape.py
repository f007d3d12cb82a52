"""The compiled pipeline keeps to what a real backend was seen to need."""

import inspect
import math

import pytest
import yaml
from kfp import compiler, dsl, kubernetes

from zeus_kfp.components.open_recurrence import open_recurrence
from zeus_kfp.components.preprocess_once import preprocess_once
from zeus_kfp.pipelines.recurring_training import Stage, recurring_training
from zeus_kfp.pipelines.recurring_training.pipeline import STORE_LABEL
from zeus_kfp.zeus_core import JobSpec
from zeus_kfp.zeus_core.errors import EntryPointError, InvalidValueError


def noop_of_one(path):
    return path


STORE_TASKS = {"open-recurrence", "suggest-batch-size", "report-feedback", "select-winner", "close-recurrence"}


def compiled(tmp_path, **options):
    path = tmp_path / "pipeline.yaml"
    compiler.Compiler().compile(recurring_training(**options), str(path))
    documents = list(yaml.safe_load_all(path.read_text()))
    return documents[0], documents[1], path.stat().st_size


def all_tasks(spec):
    dags = [spec["root"]["dag"], *(c["dag"] for c in spec["components"].values() if "dag" in c)]
    return {(number, name): task for number, dag in enumerate(dags) for name, task in dag["tasks"].items()}


def test_every_task_but_preprocessing_is_uncached_at_every_level(tmp_path):
    spec, _, _ = compiled(tmp_path)
    groups = ("condition-", "for-loop-", "exit-handler-")
    cached = {
        name
        for (_, name), task in all_tasks(spec).items()
        if task.get("cachingOptions", {}).get("enableCache") and not name.startswith(groups)
    }
    assert cached == {"preprocess-once"}


def test_every_task_that_keeps_books_takes_the_run_id(tmp_path):
    spec, _, _ = compiled(tmp_path)
    tasks = {
        k: t
        for k, t in all_tasks(spec).items()
        if t["componentRef"]["name"].removeprefix("comp-")[:12] in {name[:12] for name in STORE_TASKS}
    }
    assert len(tasks) >= 7
    for task in tasks.values():
        run_id = task["inputs"]["parameters"]["run_id"]
        root = run_id.get("runtimeValue", {}).get("constant") == "{{$.pipeline_job_uuid}}"
        assert root or "componentInputParameter" in run_id


def test_only_tasks_that_keep_books_get_the_store_secret(tmp_path):
    _, platform, _ = compiled(tmp_path, store_secret="my-store")
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    with_secret = {name: config for name, config in executors.items() if "secretAsEnv" in config}
    holders = {name.removeprefix("exec-").rstrip("-0123456789") for name in with_secret}
    assert holders == STORE_TASKS
    for config in with_secret.values():
        (secret,) = config["secretAsEnv"]
        assert secret["keyToEnv"] == [{"envVar": "ZEUS_KFP_STORE_URL", "secretKey": "url"}]
        assert "my-store" in str(secret)
        assert config["podMetadata"]["labels"] == {STORE_LABEL: "true"}


def test_training_tasks_know_their_node(tmp_path):
    _, platform, _ = compiled(tmp_path)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    knowing = {name: config["fieldPathAsEnv"] for name, config in executors.items() if "fieldPathAsEnv" in config}
    assert {name.rstrip("-0123456789") for name in knowing} == {"exec-train-with-profiling"} and len(knowing) == 2
    assert all(path == [{"name": "ZEUS_KFP_NODE", "fieldPath": "spec.nodeName"}] for path in knowing.values())


STAGED = {"stages": {"index": Stage(lambda model: noop(model=model), every="new data")}, "fingerprint": ["/data"]}


def test_the_builders_own_steps_get_no_secret_and_what_frames_them_does(tmp_path):
    spec, platform, _ = compiled(tmp_path, **STAGED)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    holders = {name.removeprefix("exec-").rstrip("-0123456789") for name, c in executors.items() if "secretAsEnv" in c}
    assert holders == STORE_TASKS | {"stage-turn", "stage-done"}
    groups = ("condition-", "for-loop-", "exit-handler-", "noop")
    tasks = {name: task for (_, name), task in all_tasks(spec).items() if not name.startswith(groups)}
    cached = {name for name, task in tasks.items() if task.get("cachingOptions", {}).get("enableCache")}
    assert cached == {"preprocess-once"}


def test_a_stage_is_done_after_all_its_steps_and_the_fingerprint_comes_first(tmp_path):
    spec, _, _ = compiled(tmp_path, **STAGED)
    tasks = {name: task for (_, name), task in all_tasks(spec).items()}
    assert tasks["stage-done"]["dependentTasks"] == ["noop"]
    assert tasks["stage-turn"]["inputs"]["parameters"]["every"]["runtimeValue"]["constant"] == 0
    version = tasks["open-recurrence"]["inputs"]["parameters"]["data_version"]["taskOutputParameter"]
    assert version == {"outputParameterKey": "Output", "producerTask": "fingerprint-data"}
    assert "componentInputParameter" in tasks["fingerprint-data"]["inputs"]["parameters"]["data_version"]


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def noop(model: dsl.Input[dsl.Model]):
    pass


def test_a_stage_whose_end_kfp_could_not_tell_is_refused():
    def grouped(model):
        with dsl.ParallelFor([1, 2]):
            noop(model=model)

    with pytest.raises(InvalidValueError, match="put that into a @dsl.pipeline"):
        recurring_training(stages={"index": Stage(grouped, every=3)})
    recurring_training(stages={"index": grouped})


@pytest.mark.parametrize("every", [1, 3, "new data"])
def test_a_function_that_adds_no_step_is_no_stage(every):
    with pytest.raises(InvalidValueError, match=r"the stage 'evaluate' added no step.*@dsl\.component"):
        recurring_training(stages={"evaluate": Stage(lambda model: None, every=every)})


@pytest.mark.parametrize(
    ("fingerprint", "error", "says"),
    [
        ([], InvalidValueError, "has no paths"),
        (["s3://bucket/raw"], InvalidValueError, "is a URI"),
        ([3], InvalidValueError, "path of the fingerprint"),
        (lambda: "v", EntryPointError, "no plain function"),
        (noop_of_one, EntryPointError, "must need no argument"),
    ],
)
def test_a_fingerprint_that_no_run_could_tell_is_refused(fingerprint, error, says):
    with pytest.raises(error, match=says):
        recurring_training(fingerprint=fingerprint)


def test_loop_items_are_integers_and_one_at_a_time(tmp_path):
    spec, _, _ = compiled(tmp_path)
    loops = [t for t in all_tasks(spec).values() if "parameterIterator" in t]
    assert [t["iteratorPolicy"]["parallelismLimit"] for t in loops] == [1]
    items = spec["components"][loops[0]["componentRef"]["name"]]["inputDefinitions"]["parameters"]
    assert items["pipelinechannel--slots-loop-item"]["parameterType"] == "NUMBER_INTEGER"


def test_gates_are_integers_in_a_field_named_output(tmp_path):
    spec, _, _ = compiled(tmp_path)
    conditions = [
        t["triggerPolicy"]["condition"] for t in all_tasks(spec).values() if "condition" in t.get("triggerPolicy", {})
    ]
    assert len(conditions) == 2
    assert all("-Output']) > 0" in condition for condition in conditions)


def test_nothing_stands_after_the_exit_handlers_group(tmp_path):
    spec, _, _ = compiled(tmp_path)
    tasks = spec["root"]["dag"]["tasks"]
    assert set(tasks) == {"close-recurrence", "exit-handler-1"}
    assert tasks["close-recurrence"]["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"


def test_resource_limits_are_ordinary_inputs_of_the_training_task_too(tmp_path):
    spec, _, _ = compiled(tmp_path)
    training = [t for (_, n), t in all_tasks(spec).items() if n.startswith("train-with-profiling")]
    assert len(training) == 2
    for task in training:
        assert {"cpu_limit", "memory_limit"} <= set(task["inputs"]["parameters"])


def test_size_does_not_grow_with_max_retries(tmp_path):
    few, many = (compiled(tmp_path, max_retries=retries)[2] for retries in (1, 1000))
    assert abs(many - few) <= 10


def test_no_deadline_and_no_parameter_that_yaml_or_the_form_misreads(tmp_path):
    spec, _, _ = compiled(tmp_path)
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert "activeDeadline" not in str(spec)
    assert not {"n", "y", "on", "off", "yes", "no"} & set(parameters)
    assert all(p.get("defaultValue", 0) is not None for p in parameters.values())
    assert all("description" in p for p in parameters.values())


def test_every_knob_of_a_job_is_a_parameter_with_the_jobs_own_default():
    parameters = inspect.signature(open_recurrence.python_func).parameters
    for knob in inspect.signature(JobSpec).parameters.values():
        assert parameters[knob.name].default == knob.default, knob.name


def test_defaults_of_the_builder_reach_the_yaml(tmp_path):
    spec, _, _ = compiled(tmp_path, job_id="j", batch_sizes=[8, 16], default_batch_size=8, target_metric=0.5)
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert parameters["job_id"]["defaultValue"] == "j"
    assert parameters["batch_sizes"]["defaultValue"] == [8, 16]


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"batch_sizes": "8,16"}, "batch_sizes"),
        ({"batch_sizes": []}, "batch_sizes"),
        ({"batch_sizes": None}, "batch_sizes"),
        ({"batch_sizes": [16, 8]}, "ascending"),
        ({"batch_sizes": [8, 8]}, "repeat"),
        ({"batch_sizes": [8.5]}, "8.5"),
        ({"batch_sizes": [8, 16], "default_batch_size": 32}, "32 is not among"),
        ({"target_metric": math.nan}, "target_metric"),
        ({"beta_knob": math.inf}, "1e9"),
        ({"beta_knob": 1}, "beta_knob"),
        ({"eta_knob": 2}, "eta_knob"),
        ({"max_retries": "2"}, "max_retries"),
        ({"seed": 2**53}, "seed"),
        ({"period_s": 1.0}, "at least 60 s, not 1.0: each start costs"),
        ({"max_concurrent_recurrences": 1001}, "at most 1000, not 1001"),
    ],
)
def test_a_knob_out_of_its_range_is_refused_when_the_pipeline_is_built(knobs, named):
    with pytest.raises(InvalidValueError, match=named):
        recurring_training(**knobs)


def test_an_unknown_default_is_refused_by_name():
    with pytest.raises(TypeError, match="no parameter.*btach_sizes"):
        recurring_training(btach_sizes=[8])


def test_hooks_configure_every_training_task_and_every_task(tmp_path):
    def volume(task):
        kubernetes.mount_pvc(task, pvc_name="checkpoints", mount_path="/checkpoints")

    def gpus(task, count):
        task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(count)

    spec, platform, _ = compiled(
        tmp_path,
        configure_train=lambda task: (
            volume(task) or task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(2)
        ),
        configure_task=lambda task: kubernetes.add_toleration(task, key="gpu", operator="Exists"),
    )
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert sum("pvcMount" in e for e in executors.values()) == 2
    assert len(executors) == 10 and all("tolerations" in e for e in executors.values())
    assert str(spec["deploymentSpec"]).count("'resourceCount': '2'") == 2


def test_downstream_takes_the_winners_model(tmp_path):
    spec, _, _ = compiled(tmp_path, downstream=lambda model: _consume(model))
    tasks = {name: task for (_, name), task in all_tasks(spec).items()}
    assert tasks["consume"]["inputs"]["artifacts"]["model"]["taskOutputArtifact"]["producerTask"] == "select-winner"


def _consume(model):
    from kfp import dsl

    @dsl.component
    def consume(model: dsl.Input[dsl.Model]):
        print(model.path)

    return consume(model=model)


def test_a_stage_that_does_not_run_each_time_is_gated_on_an_integer_and_keeps_books(tmp_path):
    stages = {"evaluate": _consume, "deploy": Stage(_consume, every=3)}
    spec, platform, _ = compiled(tmp_path, stages=stages)
    (turn,) = [task for (_, name), task in all_tasks(spec).items() if name == "stage-turn"]
    assert turn["inputs"]["parameters"]["stage"]["runtimeValue"]["constant"] == "deploy"
    assert turn["inputs"]["parameters"]["every"]["runtimeValue"]["constant"] == 3
    assert "enableCache" not in turn["cachingOptions"]
    assert "exec-stage-turn" in platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    conditions = [str(t.get("triggerPolicy", {}).get("condition")) for t in all_tasks(spec).values()]
    assert any("stage-turn-Output']) > 0" in condition for condition in conditions)
    assert sum(name.startswith("consume") for _, name in all_tasks(spec)) == 2


@pytest.mark.parametrize(
    ("stages", "named"),
    [
        ({"": _consume}, "name of a stage must not be empty"),
        ({3: _consume}, "name of a stage must be text"),
        ({"deploy": 3}, "function or a KFP component, not 3"),
        ({"deploy": preprocess_once}, "input 'model'"),
    ],
)
def test_a_stage_that_cannot_be_built_is_refused_by_name(stages, named):
    with pytest.raises(InvalidValueError, match=named):
        recurring_training(stages=stages)


@pytest.mark.parametrize("every", [-2, 1.5, True, None, "3", "", 10**10])
def test_a_stage_runs_every_whole_number_of_recurrences(every):
    with pytest.raises(InvalidValueError, match="every of a stage"):
        Stage(_consume, every=every)


def test_preprocessing_takes_neither_run_id_nor_job_so_that_its_cache_can_hit():
    assert set(preprocess_once.component_spec.inputs) == {"entry_point", "data_epoch", "entry_source", "arguments"}


def test_power_access_is_given_to_training_alone_and_the_claim_to_the_exit_handler_too(tmp_path):
    _, platform, _ = compiled(tmp_path, limits_claim="gpu-limits", zeusd_port=4938)
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    mounted = {name: config["pvcMount"] for name, config in executors.items() if "pvcMount" in config}
    assert {name.removeprefix("exec-").rstrip("-2") for name in mounted} == {"train-with-profiling", "close-recurrence"}
    for [mount] in mounted.values():
        assert (mount["mountPath"], mount["constant"]) == ("/var/lib/zeus-kfp/limits", "gpu-limits")
    addressed = {
        name
        for name, config in executors.items()
        if {"name": "ZEUS_KFP_NODE_ADDRESS", "fieldPath": "status.hostIP"} in config.get("fieldPathAsEnv", [])
    }
    assert {name.removeprefix("exec-").rstrip("-2") for name in addressed} == {"train-with-profiling"}
    labelled = {name for name, config in executors.items() if "zeus-kfp/zeusd" in str(config.get("podMetadata"))}
    assert labelled == set(mounted)


def test_power_access_reaches_the_environment_of_training(tmp_path):
    spec, _, _ = compiled(tmp_path, limits_claim="gpu-limits", zeusd_port=4938)
    given = {
        name: {entry["name"]: entry["value"] for entry in executor["container"].get("env", [])}
        for name, executor in spec["deploymentSpec"]["executors"].items()
    }
    training = {"ZEUS_KFP_LIMITS_FOLDER": "/var/lib/zeus-kfp/limits", "ZEUS_KFP_ZEUSD_PORT": "4938"}
    assert given["exec-train-with-profiling"] == training
    assert given["exec-close-recurrence"] == {"ZEUS_KFP_LIMITS_FOLDER": "/var/lib/zeus-kfp/limits"}


def test_without_power_access_nothing_is_mounted(tmp_path):
    spec, platform, _ = compiled(tmp_path)
    assert "pvcMount" not in str(platform)
    assert "hostIP" not in str(platform)
    assert "zeus-kfp/zeusd" not in str(platform)
    assert "ZEUS_KFP_LIMITS_FOLDER" not in str(spec)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"limits_claim": "Not A Name"}, "limits_claim must be the name of a volume claim, not 'Not A Name'"),
        ({"limits_claim": None}, "limits_claim must be text"),
        ({"zeusd_port": 70_000}, "zeusd_port must be at most 65535"),
        ({"zeusd_port": -1}, "zeusd_port must be at least 0"),
        ({"zeusd_port": "4938"}, "zeusd_port must be"),
    ],
)
def test_power_access_that_cannot_be_is_refused(options, why):
    with pytest.raises(InvalidValueError, match=why):
        recurring_training(**options)
