"""The YAML keeps to what KFP's driver and Argo can run, as far as that can be told without them.

KFP's compiler of Argo workflows runs inside its API server, and no cluster is at hand: what decides its output is
checked here instead. Each rule is a fault that was seen on a real backend, or a limit of Kubernetes.
"""

import json
import re
from importlib.resources import files

import pytest
import yaml
from kfp import compiler, dsl

from zeus_kfp.pipelines.recurring_training import Stage, recurring_training

LONGEST_ARGUMENT = 131_072
"""Linux takes no longer argument of a process, and the driver gets each component, task and container as one."""

LARGEST_WORKFLOW = 1_048_576
"""What etcd keeps of one object, about."""

TASK_FIELDS = {
    "cachingOptions", "componentRef", "dependentTasks", "inputs", "iteratorPolicy", "parameterIterator", "taskInfo",
    "triggerPolicy",
}  # fmt: skip


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def use(model: dsl.Input[dsl.Model]):
    pass


def with_everything():
    every = {"a": 1, "b": 3, "c": "once", "d": "new data"}
    stages = {name: Stage(lambda model: use(model=model), every=every[name]) for name in every}
    return recurring_training(train="m:f", preprocess="m:g", fingerprint=["/data"], stages=stages, job_id="j")


@pytest.fixture(scope="module", params=["recurring_training", "recurring_training_gpu", "with everything"])
def spec(request, tmp_path_factory):
    if request.param == "with everything":
        path = tmp_path_factory.mktemp("yaml") / "pipeline.yaml"
        compiler.Compiler().compile(with_everything(), str(path))
        text = path.read_text()
    else:
        text = files("zeus_kfp.compiled").joinpath(f"{request.param}.yaml").read_text("utf-8")
    return next(iter(yaml.safe_load_all(text)))


def dags(spec):
    """Yield each DAG with the inputs that it is given."""
    for component in [spec["root"], *spec["components"].values()]:
        if "dag" in component:
            yield component["dag"], component.get("inputDefinitions", {})


def tasks(spec):
    return [(name, task) for dag, _ in dags(spec) for name, task in dag["tasks"].items()]


def inputs(task):
    for kind in ("parameters", "artifacts"):
        for name, source in task.get("inputs", {}).get(kind, {}).items():
            yield kind, name, source


def component_of(spec, task):
    return spec["components"][task["componentRef"]["name"]]


def test_every_step_is_a_container_and_nothing_is_asked_that_argo_or_the_driver_does_not_know(spec):
    executors = spec["deploymentSpec"]["executors"]
    assert all(set(executor) == {"container"} for executor in executors.values())
    fields = {field for executor in executors.values() for field in executor["container"]}
    assert fields <= {"args", "command", "env", "image", "resources"}
    assert {field for _, task in tasks(spec) for field in task} <= TASK_FIELDS
    leaves = [c["executorLabel"] for c in spec["components"].values() if "dag" not in c]
    assert set(leaves) == set(executors)


def test_nothing_relies_on_retries_or_deadlines_of_kfp(spec):
    assert not re.search(r"retryPolicy|maxRetryCount|activeDeadline|\bttl\b", json.dumps(spec))


def test_gates_compare_integers_and_only_the_exit_handler_runs_after_a_failure(spec):
    policies = {name: task["triggerPolicy"] for name, task in tasks(spec) if "triggerPolicy" in task}
    after_all = [name for name, policy in policies.items() if "strategy" in policy]
    assert after_all == ["close-recurrence"]
    for name, policy in policies.items():
        if "condition" in policy:
            assert re.fullmatch(r"int\(inputs\.parameter_values\['[\w-]+'\]\) > 0", policy["condition"]), name


def test_a_loop_runs_one_at_a_time(spec):
    loops = [task for _, task in tasks(spec) if "parameterIterator" in task]
    assert [task["iteratorPolicy"] for task in loops] == [{"parallelismLimit": 1}]


def test_every_input_comes_from_a_step_or_an_input_of_the_same_dag(spec):
    """Else the driver dies: "parent DAG does not have input parameter"."""
    for dag, given in dags(spec):
        for name, task in dag["tasks"].items():
            assert set(task.get("dependentTasks", ())) <= set(dag["tasks"]) - {name}
            for kind, key, source in inputs(task):
                if held := source.get("componentInputParameter") or source.get("componentInputArtifact"):
                    loop = task.get("parameterIterator", {}).get("itemInput")
                    assert held in given.get(kind, {}) or held == loop, (name, key)
                if output := source.get("taskOutputParameter") or source.get("taskOutputArtifact"):
                    made = component_of(spec, dag["tasks"][output["producerTask"]])["outputDefinitions"][kind]
                    assert (output.get("outputParameterKey") or output["outputArtifactKey"]) in made
                    assert output["producerTask"] in task["dependentTasks"], (name, key)


def test_a_parameter_has_the_type_that_its_step_takes(spec):
    """Else the driver refuses: "type mismatch: expect NUMBER_INTEGER, got string"."""
    for dag, given in dags(spec):
        for name, task in dag["tasks"].items():
            taken = component_of(spec, task).get("inputDefinitions", {}).get("parameters", {})
            for kind, key, source in inputs(task):
                held = kind == "parameters" and source.get("componentInputParameter")
                output = kind == "parameters" and source.get("taskOutputParameter")
                if held and key in taken:
                    assert taken[key]["parameterType"] == given["parameters"][held]["parameterType"], (name, key)
                if output and key in taken:
                    producer = component_of(spec, dag["tasks"][output["producerTask"]])
                    made = producer["outputDefinitions"]["parameters"][output["outputParameterKey"]]
                    assert taken[key]["parameterType"] == made["parameterType"], (name, key)


def test_every_step_that_needs_an_input_gets_it(spec):
    for name, task in tasks(spec):
        wanted = component_of(spec, task).get("inputDefinitions", {})
        for kind in ("parameters", "artifacts"):
            optional = {n for n, i in wanted.get(kind, {}).items() if i.get("isOptional") or "defaultValue" in i}
            given = set(task.get("inputs", {}).get(kind, {}))
            given |= {task.get("parameterIterator", {}).get("itemInput")}
            assert set(wanted.get(kind, {})) - optional <= given, name


def test_no_dag_is_circular(spec):
    for dag, _ in dags(spec):
        left = {name: set(task.get("dependentTasks", ())) for name, task in dag["tasks"].items()}
        while ready := {name for name, needs in left.items() if not needs}:
            left = {name: needs - ready for name, needs in left.items() if name not in ready}
        assert not left


def test_what_the_driver_gets_as_an_argument_is_short_enough_and_the_workflow_small_enough(spec):
    pieces = [*spec["components"].values(), *spec["deploymentSpec"]["executors"].values(), *dict(tasks(spec)).values()]
    sizes = [len(json.dumps(piece)) for piece in pieces]
    assert max(sizes) < LONGEST_ARGUMENT / 8
    # A workflow holds the pieces as parameters, and templates beside them; twice the whole is ample.
    assert 2 * len(json.dumps(spec)) < LARGEST_WORKFLOW / 4


def test_names_are_what_kubernetes_takes(spec):
    for name in [spec["pipelineInfo"]["name"], *(name for name, _ in tasks(spec))]:
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name), name
