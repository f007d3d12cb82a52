"""One recurrence as a DAG.

    close_recurrence   exit handler
    fingerprint_data   where the builder gave one → the raw data's version
    └ open_recurrence  → gate, slots, data epoch
      └ If(gate > 0)
        preprocess_once   the only cached task
        first_trial       suggest → train → report → the slots still to try
        retries           ParallelFor(those slots, one at a time): suggest → If(> 0): train → report
        select_winner     → the model, for steps that come after
        stages            each in the recurrences that are its turn: stage_turn → If(> 0): its steps → stage_done

The store, not the DAG, is the loop's state. What shapes it: a gate must be an integer in a field named Output,
and loop items a List[int], or the backend or the local runner refuses them; an empty loop costs no pod; tasks
with side effects are never cached and take the run id; nothing stands after the exit handler's group, or a
failed run would turn green; parallelism stays 1, since a slot takes an earlier one that is still issued for dead.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, List

from kfp import dsl, kubernetes
from kfp.dsl.pipeline_context import Pipeline

from zeus_kfp.components.close_recurrence import close_recurrence
from zeus_kfp.components.fingerprint_data import fingerprint_data
from zeus_kfp.components.open_recurrence import open_recurrence
from zeus_kfp.components.preprocess_once import preprocess_once
from zeus_kfp.components.report_feedback import report_feedback
from zeus_kfp.components.select_winner import select_winner
from zeus_kfp.components.stage_done import stage_done
from zeus_kfp.components.stage_turn import stage_turn
from zeus_kfp.components.suggest_batch_size import suggest_batch_size
from zeus_kfp.components.train_with_profiling import train_with_profiling
from zeus_kfp.pipelines.recurring_training.checks import (
    check_hook,
    check_kubernetes_name,
    check_pipeline_name,
    checked_parameters,
)
from zeus_kfp.pipelines.recurring_training.entry import Entry, entry_of, fingerprint_entry, function_entry_of
from zeus_kfp.pipelines.recurring_training.parameters import (
    TRIAL_PARAMETERS,
    knob_names,
    with_pipeline_parameters,
    with_trial_parameters,
)
from zeus_kfp.pipelines.recurring_training.power_access import PowerAccess
from zeus_kfp.pipelines.recurring_training.stages import Stage, checked_stages
from zeus_kfp.zeus_core.errors import InvalidValueError
from zeus_kfp.zeus_core.power.note import NODE_VARIABLE

RUN_ID = dsl.PIPELINE_JOB_ID_PLACEHOLDER
STORE_SECRET = "zeus-kfp-store"
STORE_SECRET_KEY = "url"
STORE_VARIABLE = "ZEUS_KFP_STORE_URL"
STORE_LABEL = "zeus-kfp/store"
"""Label of the pods that keep the books, by which a network policy lets them reach the database."""

Configure = Callable[[dsl.PipelineTask], object]


def recurring_training(
    *,
    train: str | Callable[..., Any] | None = None,
    preprocess: str | Callable[..., Any] | None = None,
    fingerprint: str | Callable[..., Any] | Sequence[str] | None = None,
    name: str = "recurring-training",
    configure_train: Configure | None = None,
    configure_task: Configure | None = None,
    downstream: Callable[[Any], object] | None = None,
    stages: Mapping[str, Stage | Callable[..., object]] | None = None,
    store_secret: str = STORE_SECRET,
    limits_claim: str = "",
    zeusd_port: int = 0,
    **defaults: Any,
) -> Any:
    """Build the recurring-training pipeline.

    Args:
        train: Training code: a plain function train(trial), whose source is shipped with the pipeline, or
            "module:function", a script or any command; None leaves it to the run's parameters.
        preprocess: Preprocessing: a plain function preprocess(output_path, **arguments) or "module:function".
        fingerprint: What tells the raw data's version in each run, before a recurrence is opened, so that data that
            changed starts one and is preprocessed again: a plain function without arguments that returns text or a
            whole number, "module:function", or a list of files and folders that are hashed. It runs in the training
            image, and every run pays for its pod.
        name: The pipeline's name; KFP keeps its cache of preprocessed data by it.
        configure_train: Called with each training task while it is built, to add an accelerator, node selector,
            volumes, ….
        configure_task: Called with every task, training too: image pull secrets, tolerations, ….
        downstream: Called with the winner's model (a Model artifact) to add the steps that come after.
        stages: The same by name, each with how often it runs: {"deploy": Stage(deploy, every=3)}; what is no Stage
            runs in each recurrence.
        store_secret: Kubernetes secret whose key "url" holds the store's URL.
        limits_claim: Volume claim, mounted by training tasks and by the exit handler, where the power limits found are
            kept, so that the exit handler and the next trial on a node repair what a killed pod left; "" for none.
        zeusd_port: TCP port of a zeusd on every GPU node, which sets power limits for the node's pods; 0 for none.
        **defaults: Defaults for the pipeline's parameters, such as job_id or batch_sizes; train_arguments and
            preprocess_arguments may be mappings.

    Returns:
        A KFP pipeline: compile it, submit it, or call it under KFP's local runner.

    Raises:
        EntryPointError: If a function can't be shipped as source.
        InvalidValueError: If a default is out of its range, or can't be a parameter of KFP, or another argument can't
            be what it stands for.
        TypeError: If a default is given for a parameter that the pipeline doesn't have.
    """
    check_pipeline_name(name)
    check_hook("configure_train", configure_train)
    check_hook("configure_task", configure_task)
    check_kubernetes_name("store_secret", store_secret, "a secret")
    entries = entry_of(train, "trial"), function_entry_of(preprocess, "output_path"), fingerprint_entry(fingerprint)
    after = checked_stages(stages)
    power = PowerAccess(limits_claim, zeusd_port)
    next_step = None if downstream is None else Stage(downstream)
    shape = _Shape(*entries, configure_train, configure_task, next_step, after, store_secret, power)
    given = {
        "train_entry_point": shape.train.entry_point,
        "preprocess_entry_point": shape.preprocess.entry_point,
    }
    defaults = checked_parameters({key: value for key, value in given.items() if value} | defaults)
    return dsl.pipeline(name=name)(with_pipeline_parameters(shape.recurrence, defaults))


class _Shape:
    """The DAG's parts, with what was fixed when it was built."""

    def __init__(
        self,
        train: Entry,
        preprocess: Entry,
        fingerprint: Entry,
        configure_train: Configure | None,
        configure_task: Configure | None,
        downstream: Stage | None,
        stages: Mapping[str, Stage],
        store_secret: str,
        power: PowerAccess,
    ) -> None:
        self.train = train
        self.preprocess = preprocess
        self.fingerprint = fingerprint
        self._configure_train = configure_train
        self._configure_task = configure_task
        self._downstream = downstream
        self._stages = stages
        self._store_secret = store_secret
        self._power = power
        # KFP traces a pipeline where it is declared, and refuses to do so while another is being traced.
        first_trial = with_trial_parameters(self._first_trial, returns=List[int])
        retries = with_trial_parameters(self._retries, returns=inspect.Signature.empty)
        self.first_trial = dsl.pipeline(name="first-trial")(first_trial)
        self.retries = dsl.pipeline(name="retries")(retries)

    def recurrence(self, **p: Any) -> None:
        """Trace the whole DAG."""
        job = {"job_id": p["job_id"], "run_id": RUN_ID}
        knobs = {name: p[name] for name in knob_names() if name != "job_id"}
        with dsl.ExitHandler(self._power.remember(self._on_store(close_recurrence(**job))), name="recurrence"):
            if self.fingerprint.entry_point:
                knobs["data_version"] = self._fingerprint(p)
            opened = self._on_store(open_recurrence(**job, **knobs))
            with dsl.If(opened.outputs["Output"] > 0, name="granted"):
                data = self._preprocess(p, opened.outputs["data_epoch"])
                trial = job | {"data": data, **{name: p[name] for name in TRIAL_PARAMETERS}}
                first = self.first_trial(slots=opened.outputs["slots"], **trial).set_caching_options(False)
                rest = self.retries(slots=first.output, **trial).set_caching_options(False)
                winner = self._on_store(select_winner(**job).after(rest))
                if self._downstream:
                    self._downstream.add(winner.outputs["model"])
                for name, stage in self._stages.items():
                    self._stage(job, name, stage, winner)

    def _stage(self, job: Mapping[str, Any], name: str, stage: Stage, winner: dsl.PipelineTask) -> None:
        if stage.turns == 1:
            _add(name, stage, winner)
            return
        turn = self._on_store(stage_turn(**job, stage=name, every=stage.turns).after(winner))
        with dsl.If(turn.output > 0, name=f"{name}-turn") as group:
            _add(name, stage, winner)
            steps = _steps_of(name, group)
            self._on_store(stage_done(**job, stage=name).after(*steps))

    def _first_trial(self, **p: Any) -> Any:
        return self._train_and_report(p, 1, self._suggest(p, slot=1)).output

    def _retries(self, **p: Any) -> None:
        with dsl.ParallelFor(items=p["slots"], parallelism=1, name="retry") as slot:
            suggested = self._suggest(p, slot=slot)
            with dsl.If(suggested.outputs["Output"] > 0, name="live"):
                self._train_and_report(p, slot, suggested)

    def _suggest(self, p: Mapping[str, Any], slot: Any) -> dsl.PipelineTask:
        return self._on_store(suggest_batch_size(job_id=p["job_id"], run_id=p["run_id"], slot=slot))

    def _train_and_report(self, p: Mapping[str, Any], slot: Any, suggested: dsl.PipelineTask) -> dsl.PipelineTask:
        trained = train_with_profiling(
            data=p["data"],
            suggestion=suggested.outputs["suggestion"],
            batch_size=suggested.outputs["Output"],
            entry_point=p["train_entry_point"],
            entry_source=self.train.source,
            arguments=p["train_arguments"],
            checkpoint_dir=p["checkpoint_dir"],
            cpu_limit=p["train_cpu_limit"],
            memory_limit=p["train_memory_limit"],
        )
        trained.set_container_image(p["training_image"])
        # A limit that a killed pod left behind is the node's, not the pod's.
        kubernetes.use_field_path_as_env(trained, env_name=NODE_VARIABLE, field_path="spec.nodeName")
        trained.set_cpu_limit(p["train_cpu_limit"]).set_memory_limit(p["train_memory_limit"])
        self._power.give(trained)
        if self._configure_train:
            self._configure_train(trained)
        self._uncached(trained)
        return self._on_store(
            report_feedback(
                job_id=p["job_id"],
                run_id=p["run_id"],
                slot=slot,
                outcome=trained.outputs["Output"],
                profile=trained.outputs["profile"],
            )
        )

    def _fingerprint(self, p: Mapping[str, Any]) -> Any:
        task = fingerprint_data(
            entry_point=self.fingerprint.entry_point,
            entry_source=self.fingerprint.source,
            arguments=self.fingerprint.arguments,
            data_version=p["data_version"],
            run_id=RUN_ID,
        )
        return self._uncached(task.set_container_image(p["training_image"])).output

    def _preprocess(self, p: Mapping[str, Any], data_epoch: Any) -> Any:
        task = preprocess_once(
            entry_point=p["preprocess_entry_point"],
            entry_source=self.preprocess.source,
            arguments=p["preprocess_arguments"],
            data_epoch=data_epoch,
        )
        task.set_container_image(p["training_image"])
        if self._configure_task:
            self._configure_task(task)
        return task.outputs["data"]

    def _on_store(self, task: dsl.PipelineTask) -> dsl.PipelineTask:
        """Give a task the store's URL and the way to it, which only tasks that keep its books may have."""
        kubernetes.add_pod_label(task, label_key=STORE_LABEL, label_value="true")
        kubernetes.use_secret_as_env(
            task, secret_name=self._store_secret, secret_key_to_env={STORE_SECRET_KEY: STORE_VARIABLE}
        )
        return self._uncached(task)

    def _uncached(self, task: dsl.PipelineTask) -> dsl.PipelineTask:
        if self._configure_task:
            self._configure_task(task)
        return task.set_caching_options(False)


def _add(name: str, stage: Stage, winner: dsl.PipelineTask) -> None:
    """Add a stage's steps.

    Raises:
        InvalidValueError: If there are none: it is a function that would have run in a step.
    """
    pipeline = Pipeline.get_default_pipeline()
    before = len(pipeline.tasks)
    stage.add(winner.outputs["model"])
    if len(pipeline.tasks) == before:
        raise InvalidValueError(
            f"the stage {name!r} added no step to the pipeline: it is called once, while that is built. Make it "
            "a component with the input `model` (@dsl.component), or call components in it"
        )


def _steps_of(name: str, group: Any) -> list[dsl.PipelineTask]:
    """Return the steps that a stage added to a group.

    Raises:
        InvalidValueError: If it added groups, after which KFP lets nothing stand: the stage's end would not be known.
    """
    if group.groups:
        raise InvalidValueError(
            f"the stage {name!r} does not run in each recurrence, so that its end must be known, and holds a dsl.If, "
            "dsl.ParallelFor or another group: put that into a @dsl.pipeline, and call it in the stage"
        )
    return list(group.tasks)
