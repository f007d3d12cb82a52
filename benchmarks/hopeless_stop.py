"""Replay recorded jobs with and without stopping hopeless trials, and fail where it costs more than it saves.

    ZEUS_KFP_SHARED_DATA=… python benchmarks/hopeless_stop.py [--seeds 20]

Regret is what was spent above the best fixed batch size and power limit, as a share of that, over 50 recurrences at eta
0.5 and beta 2 unless a line says otherwise. A stop is false if the trial would have reached the target below its cost
threshold and within max_epochs. "Worst job" is the largest rise of a job's regret by the stop.

Before it come the jobs of `learning_curves.py`, which are made up to mislead: there the share of the trials that would
have reached the target, and were stopped, is what counts, under either policy and where trials go to any size.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from learning_curves import FAMILIES, HELD_OUT, hard_to_tell
from policy_regret import RECURRENCES, TRACES, Case, every_default, recorded_cases
from rich.console import Console
from rich.table import Table

from zeus_kfp.zeus_core.learning_curve import Curve
from zeus_kfp.zeus_core.policies import Policy, policy_named
from zeus_kfp.zeus_core.simulation import PLAIN, Change, Replay, Scenario, oracle, replay_seeds
from zeus_kfp.zeus_core.trial import Purpose, Suggestion, TrialState

POLICIES = ("zeus", "bayes")
MOST_RATIO = {"zeus": 0.999, "bayes": 1.0}
"""Regret with the stop over that without; on the recorded jobs `bayes` hardly ever tries a size that is hopeless."""
MOST_FALSE = 0.02
MOST_RISE = 0.005


class AnySize:
    """Tries any batch size, as likely one as another, so that the stop is put to the test at all of them."""

    name = "any size"

    def suggest(self, job, learnt, in_flight, rng) -> Suggestion:
        """Return a size, the default until one has reached the target."""
        cheapest = learnt.min_recurrence_cost
        if cheapest is None:
            return Suggestion(job.default_batch_size, Purpose.SAMPLING, "the first", None, 1.0)
        size = int(rng.choice(job.batch_sizes))
        return Suggestion(size, Purpose.SAMPLING, "any", job.beta_knob * cheapest, 1.0)

    def posterior(self, job, learnt) -> tuple:
        """Return nothing: it believes nothing."""
        return ()


@dataclass(frozen=True)
class Counts:
    """How trials ended: stopped as hopeless, falsely so, in all without reaching the target, and reaching it."""

    stops: int
    false_stops: int
    given_up: int
    reached: int

    @classmethod
    def of(cls, replays: Sequence[Replay]) -> "Counts":
        """Count the trials of replays."""
        outcomes = [trial.outcome for one in replays for trial in one.trials]
        stops = [outcome for outcome in outcomes if outcome.least_epochs is not None]
        states = [outcome.state for outcome in outcomes]
        false_stops = sum(outcome.would_reach for outcome in stops)
        return cls(len(stops), false_stops, states.count(TrialState.NOT_REACHED), states.count(TrialState.REACHED))

    @property
    def false_share(self) -> float:
        """Share of the trials that would have reached the target which were stopped."""
        return self.false_stops / max(self.reached + self.false_stops, 1)

    def cells(self) -> list[str]:
        """Return a table's cells."""
        return [f"{count:,}" for count in (self.stops, self.given_up, self.false_stops, self.reached)]


@dataclass(frozen=True)
class Row:
    """A policy's figures over several jobs.

    Attributes:
        name: What was replayed.
        policy: The policy.
        without: Regret of each job without the stop.
        stopping: Regret of each job with it.
        counts: How the trials ended with it.
    """

    name: str
    policy: str
    without: tuple[float, ...]
    stopping: tuple[float, ...]
    counts: Counts

    @property
    def ratio(self) -> float:
        """Mean regret with the stop over that without."""
        return sum(self.stopping) / sum(self.without)

    @property
    def rise(self) -> float:
        """Largest rise of a job's regret by the stop, as a share of the oracle's cost."""
        return max(after - before for before, after in zip(self.without, self.stopping, strict=True))

    @property
    def is_detail(self) -> bool:
        """Whether it is of a single job, which may gain nothing."""
        return self.name.startswith("  ")

    @property
    def is_met(self) -> bool:
        """Whether nothing falls short."""
        is_cheaper = self.ratio <= MOST_RATIO[self.policy] + 1e-9 and self.rise <= MOST_RISE
        return is_cheaper and self.counts.false_stops <= MOST_FALSE * self.counts.stops

    def cells(self) -> list[str]:
        """Return the row's cells."""
        regrets = [f"{sum(one) / len(one):.2%}" for one in (self.without, self.stopping)]
        verdict = "" if self.is_detail else _verdict(self.is_met)
        figures = [f"{self.ratio:.3f}", f"{self.rise:+.2%}", *self.counts.cells()]
        return [self.name, self.policy, *regrets, *figures, verdict]


def _verdict(is_met: bool) -> str:
    return "ok" if is_met else "FALLS SHORT"


def row(name: str, policy: str, cases: Sequence[Case], seeds: int, scenario: Scenario = PLAIN) -> Row:
    """Replay jobs with and without the stop."""
    return _over(name, policy, [(case, scenario) for case in cases], seeds)


def _over(name: str, policy: str, cases: Sequence[tuple[Case, Scenario]], seeds: int) -> Row:
    without, stopping, replays = [], [], []
    for case, scenario in cases:
        best = oracle(case.job, case.truth, RECURRENCES, scenario).cost
        if math.isfinite(best):
            plain, stopped = (_replays(case, policy, seeds, scenario, hopeless_stop=on) for on in (False, True))
            without.append(_cost(plain) / best - 1)
            stopping.append(_cost(stopped) / best - 1)
            replays += stopped
    return Row(name, policy, tuple(without), tuple(stopping), Counts.of(replays))


def _hardened(cases: Sequence[Case]) -> list[tuple[Case, Scenario]]:
    """Return the jobs with data that needs more epochs from the 26th recurrence on, all of them late in training."""
    hardened = []
    for case in cases:
        sizes = {
            size: replace(one, epochs=tuple(1.4 * e for e in one.epochs), curves=tuple(map(_late, one.curves)))
            for size, one in case.truth.sizes.items()
        }
        after = replace(case.truth, sizes=sizes)
        hardened.append((case, Scenario(changes=(Change(26, after),))))
    return hardened


def _late(curve: Curve) -> Curve:
    """Return a curve whose last two fifths take twice as long, so that what is known of its shape is wrong."""
    last = curve[-1][0] if curve else 0.0
    return tuple((epochs + max(epochs - last * 0.6, 0.0), metric) for epochs, metric in curve)


def _replays(case: Case, policy: str, seeds: int, scenario: Scenario, *, hopeless_stop: bool) -> tuple[Replay, ...]:
    job = case.with_knobs(hopeless_stop=hopeless_stop).job
    return replay_seeds(job, case.truth, policy_named(policy), RECURRENCES, range(seeds), scenario)


def _cost(replays: Sequence[Replay]) -> float:
    return sum(one.cost for one in replays) / len(replays)


def rows(seeds: int) -> list[Row]:
    """Replay everything."""
    cases, fewer = recorded_cases(), max(seeds // 5, 1)
    found = []
    for policy in POLICIES:
        found.append(row("recorded jobs", policy, cases, seeds))
        found += [row(f"  {case.name}", policy, [case], seeds) for case in cases if policy == "zeus"]
        found.append(row("from every default", policy, list(every_default(cases)), fewer))
        for beta in (1.5, 3.0):
            found.append(row(f"beta {beta:g}", policy, [case.with_knobs(beta_knob=beta) for case in cases], fewer))
        found.append(row("three at once", policy, cases, fewer, Scenario(overlap=3)))
        found.append(row("30 % more noise", policy, cases, max(seeds // 2, 1), Scenario(noise=0.3)))
        found.append(_over("harder data from the 26th on", policy, _hardened(cases), fewer))
    return found


def false_stops(name: str, policy: str, jobs: int, seeds: int) -> Counts:
    """Replay jobs of a family that is hard to tell."""
    # Where sizes come at random, most trials would be retries of those that can't reach.
    knobs = {"hopeless_stop": True, "max_retries": 1} if policy == AnySize.name else {"hopeless_stop": True}
    cases = [case.with_knobs(**knobs) for case in hard_to_tell(name, jobs)]
    chooses: Policy = AnySize() if policy == AnySize.name else policy_named(policy)
    recurrences = 20 if policy == AnySize.name else RECURRENCES
    return Counts.of([o for c in cases for o in replay_seeds(c.job, c.truth, chooses, recurrences, range(seeds))])


def hard_table(seeds: int) -> tuple[Table, bool]:
    """Return the table of what is hard to tell, and whether all of it holds."""
    table = Table(title=f"jobs that are made up to mislead: false stops, at most {MOST_FALSE:.0%} of what would reach")
    for heading in ("family", "policy", "stopped", "of not\nreached", "false\nstops", "reached", "share", ""):
        table.add_column(heading, justify="left" if heading in ("family", "policy") else "right")
    is_met = True
    for name in FAMILIES | HELD_OUT:
        for policy in (AnySize.name, *POLICIES):
            few = policy in POLICIES
            counts = false_stops(name, policy, 12 if few else 60, max(seeds // 20, 1) if few else max(seeds // 10, 1))
            is_met &= counts.false_share <= MOST_FALSE
            family = f"{name}, held out" if name in HELD_OUT else name
            cells = [*counts.cells(), f"{counts.false_share:.2%}", _verdict(counts.false_share <= MOST_FALSE)]
            table.add_row(family, policy, *cells)
    return table, is_met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="seeds for the recorded jobs; other lines use fewer")
    seeds = parser.parse_args().seeds
    misleading, is_met = hard_table(seeds)
    Console(width=120).print(misleading)
    if not (TRACES / "summary_train.csv").is_file():
        print("skipped: ZEUS_KFP_SHARED_DATA names no folder with zeus-traces/summary_train.csv")
        sys.exit(0 if is_met else 1)
    table = Table(title=f"{RECURRENCES} recurrences, {seeds} seeds: stopping hopeless trials")
    for heading in ("jobs", "policy", "regret\nwithout", "regret\nwith", "ratio", "worst\njob"):
        table.add_column(heading, justify="left" if heading in ("jobs", "policy") else "right")
    for heading in ("stopped", "of not\nreached", "false\nstops", "reached", ""):
        table.add_column(heading, justify="right")
    found = rows(seeds)
    for one in found:
        table.add_row(*one.cells())
    Console(width=120).print(table)
    sys.exit(0 if is_met and all(one.is_met or one.is_detail for one in found) else 1)


if __name__ == "__main__":
    main()
