"""Trace-driven simulation: recorded jobs, replayed through any batch-size policy."""

from zeus_kfp.zeus_core.simulation.recordings import Recording, truth_of_recordings
from zeus_kfp.zeus_core.simulation.replay import replay, replay_seeds
from zeus_kfp.zeus_core.simulation.results import (
    PolicyResult,
    Replay,
    SimulatedTrial,
    Simulation,
    Spread,
    Yardstick,
    summarise,
)
from zeus_kfp.zeus_core.simulation.run import recorded_job, recorded_truth, simulate
from zeus_kfp.zeus_core.simulation.scenario import PLAIN, Change, ChangeKind, Scenario
from zeus_kfp.zeus_core.simulation.truth import EpochPower, JobTruth, PricedSize, SizeTruth, job_truth
from zeus_kfp.zeus_core.simulation.yardsticks import default, oracle

__all__ = [
    "PLAIN",
    "Change",
    "ChangeKind",
    "EpochPower",
    "JobTruth",
    "PolicyResult",
    "PricedSize",
    "Recording",
    "Replay",
    "Scenario",
    "SimulatedTrial",
    "Simulation",
    "SizeTruth",
    "Spread",
    "Yardstick",
    "default",
    "job_truth",
    "oracle",
    "recorded_job",
    "recorded_truth",
    "replay",
    "replay_seeds",
    "simulate",
    "summarise",
    "truth_of_recordings",
]
