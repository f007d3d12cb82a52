"""Open a recurrence: register the job, reap what died, take a slot or say why not."""

from typing import List, NamedTuple

from kfp import dsl

from zeus_kfp.components.image import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def open_recurrence(
    job_id: str,
    run_id: str,
    batch_sizes: List[int],
    default_batch_size: int,
    target_metric: float,
    notice: dsl.Output[dsl.Markdown],
    higher_is_better: bool = True,
    max_epochs: int = 100,
    eta_knob: float = 0.5,
    beta_knob: float = 2.0,
    max_power_w: float = 0.0,
    max_retries: int = 5,
    num_recurrences: int = 0,
    max_concurrent_recurrences: int = 1,
    max_concurrent_recurrences_per_user: int = 0,
    period_s: float = 0.0,
    preprocess_every: int = 0,
    max_trial_time_s: float = 86400.0,
    max_step_time_s: float = 86400.0,
    policy: str = "bayes",
    num_pruning_rounds: int = 2,
    num_explorations: int = 2,
    window_size: int = 0,
    prior_mean: float = 0.0,
    prior_precision: float = 0.0,
    seed: int = 123456,
    learning_rate_rule: str = "none",
    power_objective: str = "cost",
    hopeless_stop: bool = True,
    user: str = "",
    data_version: str = "",
    start_now: bool = False,
    slow_start: bool = True,
    on_knob_change: str = "refuse",
) -> NamedTuple("Opened", Output=int, slots=List[int], data_epoch=str):
    """Open a recurrence of a job and return what it may use.

    Args:
        job_id: Name of the job, unique in the store.
        run_id: The KFP run; pass dsl.PIPELINE_JOB_ID_PLACEHOLDER.
        batch_sizes: Candidate batch sizes in samples, ascending.
        default_batch_size: The size used today; exploration starts there.
        target_metric: Value of the validation metric that ends a trial.
        higher_is_better: Whether the metric grows as the model gets better.
        max_epochs: Epochs after which a trial is given up.
        eta_knob: Weight of energy against time in the cost, 0 to 1.
        beta_knob: A trial stops early once it would cost this many times the cheapest recurrence; above 1.
        max_power_w: Rated power in W of the GPUs used; 0 takes what the first trial reports.
        max_retries: Trials that one recurrence may spend.
        num_recurrences: Recurrences after which the job is complete; 0 means without end.
        max_concurrent_recurrences: Recurrences of the job that may run at the same time.
        max_concurrent_recurrences_per_user: Recurrences of all jobs of the user that may run at once; 0: no cap.
        period_s: Seconds from one start to the next, unless drift is signalled; 0 starts with every run.
        preprocess_every: Recurrences after which data is preprocessed again; 0: when data_version changes; -1: never.
        max_trial_time_s: Seconds after which a trial is ended.
        max_step_time_s: Seconds that preprocessing, or a stage after the winner, may take before it is taken for dead.
        policy: Name of the batch-size policy.
        num_pruning_rounds: Rounds of the pruning walk.
        num_explorations: Observations that an arm needs before it is sampled.
        window_size: Latest costs of a batch size that count; 0 counts all.
        prior_mean: Mean of every arm's prior, a reward in J.
        prior_precision: Precision of that prior; 0 is a flat one.
        seed: Seed of the policy's random generator.
        learning_rate_rule: none, linear or square_root.
        power_objective: What the best power limit is: cost, energy, time, or slowdown:1.1 (at most 1.1 times as slow).
        hopeless_stop: Whether a trial stops once it is very likely to take more epochs than it may.
        user: Whom the job belongs to.
        data_version: Version of the raw data; a new one counts as drift and preprocesses again. Empty: as before.
        start_now: Start a recurrence whether or not the period has passed; the caps hold all the same.
        slow_start: Let a new job's recurrences run one at a time, and another for every two results, though more may.
        on_knob_change: refuse or accept knobs that differ from the registered ones.
        notice: Whether the recurrence was granted, what started it, or why not and when the next is due.

    Returns:
        Output: 1 if the recurrence may train, else 0 (the gate of the pipeline).
        slots: The trial slots it may use.
        data_epoch: Key of the preprocessed data: the same key, no second preprocessing.
    """
    from zeus_kfp.components.open_recurrence.waiting import open_in_turn
    from zeus_kfp.state_store import StateStore
    from zeus_kfp.zeus_core import JobSpec

    spec = JobSpec.from_parameters(
        job_id=job_id,
        batch_sizes=batch_sizes,
        default_batch_size=default_batch_size,
        target_metric=target_metric,
        higher_is_better=higher_is_better,
        max_epochs=max_epochs,
        eta_knob=eta_knob,
        beta_knob=beta_knob,
        max_power_w=max_power_w,
        max_retries=max_retries,
        num_recurrences=num_recurrences,
        max_concurrent_recurrences=max_concurrent_recurrences,
        max_concurrent_recurrences_per_user=max_concurrent_recurrences_per_user,
        period_s=period_s,
        preprocess_every=preprocess_every,
        max_trial_time_s=max_trial_time_s,
        max_step_time_s=max_step_time_s,
        policy=policy,
        num_pruning_rounds=num_pruning_rounds,
        num_explorations=num_explorations,
        window_size=window_size,
        prior_mean=prior_mean,
        prior_precision=prior_precision,
        seed=seed,
        learning_rate_rule=learning_rate_rule,
        power_objective=power_objective,
        hopeless_stop=hopeless_stop,
        user=user,
    )
    with StateStore.from_environment() as store:
        opened = open_in_turn(
            store,
            spec,
            run_id,
            on_knob_change=on_knob_change,
            data_version=data_version,
            start_now=start_now,
            slow_start=slow_start,
        )
    with open(notice.path, "w", encoding="utf-8") as file:
        file.write(opened.why + "\n")
    return int(opened.granted), list(opened.slots), opened.data_epoch
