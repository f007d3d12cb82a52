"""Real training under the supervisor, judged by the curve of a trial before it."""

import dataclasses
import json

import pytest

from tests.components.supervised import plan_with
from zeus_kfp.components.train_with_profiling.ledger import Ledger, trial_folder
from zeus_kfp.components.train_with_profiling.limits import Limits
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core.job import JobSpec
from zeus_kfp.zeus_core.learning_curve import MOST_POINTS, Milestone, reference_of
from zeus_kfp.zeus_core.simulation.curves import stretched
from zeus_kfp.zeus_core.training.history import EpochRecord
from zeus_kfp.zeus_core.training.instrument import Spent
from zeus_kfp.zeus_core.training.spending import Spending
from zeus_kfp.zeus_core.trial import TrialOutcome, TrialPlan, TrialState

PLAN = plan_with(target_metric=0.01, higher_is_better=False, max_epochs=60, max_trial_time_s=30.0)
TRAINING = """
import torch

def train(trial):
    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    targets = inputs @ torch.tensor([1.0, -2.0, 3.0, 0.5])
    model = torch.nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=trial.arguments["lr"])
    for epoch in trial.epochs():
        for batch in trial.train([inputs]):
            loss = torch.nn.functional.mse_loss(model(batch).squeeze(1), targets)
            optimizer.zero_grad()
            loss.backward()
            if epoch >= trial.arguments.get("frozen_epochs", 0):
                optimizer.step()
        trial.report_metric(torch.nn.functional.mse_loss(model(inputs).squeeze(1), targets))
    trial.save_model(model)
"""
WRITING = """
import json, os, sys, threading
with open(os.environ["ZEUS_KFP_HISTORY_FILE"], "a") as history:
    for epoch, metric in enumerate(json.loads(sys.argv[1]), 1):
        history.write(json.dumps({"epoch": 5 * epoch, "metric": metric}) + "\\n")
if sys.argv[2] == "wait":
    threading.Event().wait()
"""


@pytest.fixture
def train(train, tmp_path):
    """Supervise a trial of this training, or of another entry point; its arguments are the training's own."""
    (tmp_path / "writing.py").write_text(WRITING)

    def run(plan=PLAN, entry_point="user:train", name="out", checkpoint_dir="", **arguments) -> TrialOutcome:
        where = {"out": name, "entry_point": entry_point, "checkpoint_dir": checkpoint_dir}
        return train(TRAINING, plan, arguments=arguments, **where).outcome

    return run


@pytest.fixture
def judged(train):
    """The plan of a trial that is judged by one that has reached the target, and by slower ones; and its outcome."""
    first = train(name="first", lr=0.1)
    reference = reference_of([(64, one.curve) for one in (first, *slower(first))], 64, higher_is_better=False)
    return dataclasses.replace(PLAN, reference=reference), first


def slower(outcome: TrialOutcome) -> list[TrialOutcome]:
    """Return trials that went as one did, each at a slower pace."""
    paces = [stretched(outcome.curve, factor) for factor in (1.3, 1.6, 2.0)]
    curves = [tuple((int(epochs), metric) for epochs, metric in curve) for curve in paces]
    return [dataclasses.replace(outcome, curve=curve, epochs=curve[-1][0]) for curve in curves]


def test_a_trial_tells_how_it_reached_its_target(judged):
    _, first = judged
    assert first.state is TrialState.REACHED and 8 < first.epochs < 30
    epochs, metrics = zip(*first.curve, strict=True)
    assert epochs[-1] == first.epochs and metrics[-1] == first.metric and len(epochs) <= MOST_POINTS
    assert list(metrics) == sorted(metrics, reverse=True)
    assert TrialOutcome.from_json(first.to_json()) == first


def test_one_that_learns_hopelessly_slowly_is_stopped(judged, train):
    plan, _ = judged
    slow = train(plan, name="slow", lr=0.002)
    assert slow.state is TrialState.NOT_REACHED and slow.reason.startswith("hopeless: ")
    assert 3 <= slow.epochs < 45
    assert slow.least_epochs > 60 and slow.curve == ()
    assert TrialOutcome.from_json(slow.to_json()) == slow
    let_go = train(dataclasses.replace(plan, reference=()), name="let-go", lr=0.002)
    assert (let_go.epochs, let_go.reason, let_go.least_epochs) == (60, "max_epochs", None)


def test_one_that_waits_and_then_reaches_is_not(judged, train):
    plan, first = judged
    late = train(plan, name="late", lr=0.1, frozen_epochs=10)
    assert (late.state, late.epochs) == (TrialState.REACHED, first.epochs + 10)
    assert late.curve[0][0] == 1 and late.curve[1][0] == 11


def test_a_program_that_knows_of_nothing_is_ended(judged, train, tmp_path):
    plan, _ = judged
    program = f"{tmp_path / 'writing.py'} {json.dumps([5.0] * 45).replace(' ', '')} wait"
    ended = train(plan, name="program", entry_point=program)
    assert (ended.state, ended.epochs) == (TrialState.NOT_REACHED, 45)
    assert ended.reason.startswith("hopeless: the best metric after 45 epochs is 5;") and ended.least_epochs > 60


RESUMED = """
def train(trial):
    for epoch in trial.epochs(start=40):
        trial.report_metric(5.0 if epoch < 46 else 0.005)
    open(trial.model_path, "w").close()
"""


@pytest.mark.parametrize(
    ("best_metric", "state", "epochs"), [(None, TrialState.NOT_REACHED, 43), (0.02, TrialState.REACHED, 47)]
)
def test_what_an_attempt_before_it_reached_speaks_for_one_that_goes_on(
    judged, train, tmp_path, best_metric, state, epochs
):
    Ledger(trial_folder(tmp_path / "volume", PLAN), "earlier", print).beat(Spent(1.0, 1.0), best_metric)
    (tmp_path / "resumed.py").write_text(RESUMED)
    where = {"entry_point": "resumed:train", "checkpoint_dir": str(tmp_path / "volume")}
    outcome = train(judged[0], name="resumed", **where)
    assert (outcome.state, outcome.epochs, outcome.attempts, outcome.curve) == (state, epochs, 2, ())


@pytest.mark.parametrize(("best_metric", "is_hopeless"), [(None, True), (0.02, False)])
def test_it_speaks_for_a_program_too(best_metric, is_hopeless):
    plan = dataclasses.replace(PLAN, reference=(Milestone(0.5, 10.0, 30.0, 0.5),))
    limits = Limits(plan, Spending(plan, 0.0, Spent(None, 0.0)), best_metric)
    why = limits.why_stop([EpochRecord(epoch, 5.0) for epoch in range(1, 51)], Spent(None, 1.0))
    assert why.startswith("hopeless: ") is is_hopeless and (limits.least_epochs is not None) is is_hopeless


@pytest.mark.parametrize(("earlier", "kept"), [(False, ((1, 5.0), (2, 0.5), (3, 0.005))), (True, ())])
def test_a_programs_curve_is_kept_unless_it_may_have_begun_at_a_checkpoint(train, tmp_path, earlier, kept):
    if earlier:
        ledger = Ledger(trial_folder(tmp_path / "volume", PLAN), "earlier", print)
        ledger.beat(Spent(1.0, 1.0))
    program = f"{tmp_path / 'writing.py'} [5.0,0.5,0.005] end"
    outcome = train(name="program", entry_point=program, checkpoint_dir=str(tmp_path / "volume"))
    assert (outcome.state, outcome.curve) == (TrialState.REACHED, kept)


def test_what_one_recurrence_shows_stops_the_next_through_store_and_artifacts(train, tmp_path):
    spec = JobSpec("job", (32, 64), 64, target_metric=0.01, higher_is_better=False, max_epochs=60, beta_knob=1e9)
    spec = dataclasses.replace(spec, hopeless_stop=True)
    with StateStore(f"sqlite:///{tmp_path / 'store.db'}") as store:

        def recur(run_id: str, outcome: TrialOutcome | None = None, **arguments) -> tuple[TrialPlan, TrialOutcome]:
            store.open_recurrence(spec, run_id)
            plan = TrialPlan.from_json(store.suggest("job", run_id, 1).to_json())
            outcome = outcome or train(plan, name=run_id, **arguments)
            store.report("job", run_id, 1, TrialOutcome.from_json(outcome.to_json()))
            store.close_recurrence("job", run_id)
            return plan, outcome

        _, first = recur("first", lr=0.1)
        for count, outcome in enumerate(slower(first)):
            recur(f"slower-{count}", outcome)
        plan, stopped = recur("hopeless", lr=0.002)
        trial, arm = store.trials("job")[-1], store.learnt("job").arm(plan.batch_size)
        assert (trial.ended, trial.state, trial.least_epochs) == (
            "hopeless",
            TrialState.NOT_REACHED,
            stopped.least_epochs,
        )
        assert arm.evidence.unreached_epochs == stopped.least_epochs > 60 > stopped.epochs
