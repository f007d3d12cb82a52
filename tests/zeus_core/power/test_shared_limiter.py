"""Limits of two processes that train together, each of which has one of the fake GPUs."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.zeus_core.power.setting import administrator_sets
from zeus_kfp.zeus_core.power import open_limiter
from zeus_kfp.zeus_core.power.options import ProfilingOptions
from zeus_kfp.zeus_core.power.profiling import Part, PowerProfiler
from zeus_kfp.zeus_core.power.selectors import SweepPoint, parse_selector
from zeus_kfp.zeus_core.training.power import SharedLimiter

LIMITS_W = (250.0, 200.0, 150.0)


class Talk:
    """Two threads that talk as the processes of a group do."""

    def __init__(self):
        self._meet = threading.Barrier(2, timeout=10)
        self._told = [None, None]

    def gather(self, rank, value):
        self._told[rank] = value
        self._meet.wait()
        told = list(self._told)
        self._meet.wait()
        return told


class Rank:
    """One of the two, with the GPU of its number."""

    measures = True

    def __init__(self, talk, rank):
        self._talk, self.rank = talk, rank
        self.own = open_limiter(os.environ | {"CUDA_VISIBLE_DEVICES": str(rank)})

    def gather(self, value):
        return self._talk.gather(self.rank, value)

    def agree(self, value):
        return self.gather(value)[0]

    def anywhere(self, is_so):
        return any(self.gather(is_so))


class Log:
    """Accounts for windows that all cost the same, and keeps their order."""

    def __init__(self, part_s):
        self.parts, self._part_s = [], part_s

    def enter(self, part, power_limit_w):
        self.parts.append((part, power_limit_w))

    def time_s(self, part, power_limit_w):
        return self._part_s

    def sweep(self):
        done = [limit_w for part, limit_w in self.parts if part is Part.WINDOW]
        return [SweepPoint(limit_w, energy_j=limit_w, time_s=1.0) for limit_w in done]


@pytest.fixture
def ranks(fake_gpus):
    fake_gpus.set(GPUS="2")
    talk = Talk()
    first, second = Rank(talk, 0), Rank(talk, 1)
    with closing(first.own), closing(second.own):
        yield first, second


def in_both(ranks, action):
    """Do something in both at once; return what each got."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(action, ranks))


def test_a_limit_stands_that_both_have(ranks, fake_gpus):
    assert in_both(ranks, lambda rank: SharedLimiter(rank.own, rank).set(150)) == [150, 150]
    assert fake_gpus.limits_w() == [150, 150]


@pytest.mark.parametrize("refused", [0, 1])
def test_a_limit_that_one_process_is_refused_stands_for_none(ranks, fake_gpus, refused):
    fake_gpus.set(**{f"SET_{refused}": "ignored"})
    assert in_both(ranks, lambda rank: SharedLimiter(rank.own, rank).set(150)) == [None, None]
    assert [rank.own.is_over for rank in ranks] == [True, True]
    assert fake_gpus.limits_w() == [250, 250]


def test_a_process_without_gpus_has_no_say(ranks):
    ranks[0].measures = False
    ranks[0].own.restore()
    assert in_both(ranks, lambda rank: SharedLimiter(rank.own, rank).set(150)) == [150, 150]


def test_limits_found_that_differ_are_not_one(ranks, fake_gpus):
    ranks[1].own.close()
    administrator_sets(fake_gpus, 220, index=1)
    ranks[1].own = open_limiter(os.environ | {"CUDA_VISIBLE_DEVICES": "1"})
    assert in_both(ranks, lambda rank: SharedLimiter(rank.own, rank).found_w) == [None, None]


def test_what_stands_in_both_is_told_and_nothing_is_put_back_where_it_differs(ranks, fake_gpus):
    def standing_w(rank):
        return SharedLimiter(rank.own, rank).standing_w()

    ranks[0].own.set(150)
    assert in_both(ranks, standing_w) == [None, None]
    assert fake_gpus.limits_w() == [150, 250]
    ranks[1].own.set(150)
    assert in_both(ranks, standing_w) == [150, 150]
    assert [rank.own.is_over for rank in ranks] == [False, False]


def profile(rank, at_step, part_s=1.0, profile_steps=2):
    """Profile; return the profiler and its log. ``at_step`` is called before every step."""
    log = Log(part_s)
    profiler = PowerProfiler(
        SharedLimiter(rank.own, rank),
        LIMITS_W,
        log,
        parse_selector("energy", eta_knob=0.5, max_power_w=300),
        ProfilingOptions(warmup_steps=1, profile_steps=profile_steps),
        shortest_window_s=0.0,
        settling_s=0.0,
        most_epochs=9,
        say=lambda line: None,
        agree=rank.agree,
        anywhere=rank.anywhere,
    )
    profiler.begin_loop(None)
    for step in range(60):
        at_step(rank, step)
        profiler.step()
    profiler.end_loop()
    return profiler, log


def test_what_is_best_is_chosen_in_both(ranks, fake_gpus):
    done = in_both(ranks, lambda rank: profile(rank, lambda rank, step: None))
    assert [profiler.chosen_w for profiler, _ in done] == [150, 150]
    assert fake_gpus.limits_w() == [150, 150]


def test_windows_have_the_same_steps_in_both_though_one_is_slow_enough_for_fewer(ranks):
    changes = [[], []]

    def at_step(rank, step):
        changes[rank.rank].append(rank.own.standing_w())

    done = in_both(ranks, lambda rank: profile(rank, at_step, part_s=(1.0, 100.0)[rank.rank], profile_steps=12))
    assert [profiler.chosen_w for profiler, _ in done] == [150, 150]
    assert [changes[0].count(limit_w) for limit_w in LIMITS_W[:2]] == [14, 13]
    assert changes[0] == changes[1]


@pytest.mark.parametrize("ended", [0, 1])
def test_profiling_ends_where_any_process_has_put_back_what_it_found(ranks, fake_gpus, ended):
    """As a signal makes it, whose handler returns."""

    def at_step(rank, step):
        if step == 4 and rank.rank == ended:
            rank.own.restore()

    for profiler, log in in_both(ranks, lambda rank: profile(rank, at_step)):
        assert (profiler.is_done, profiler.chosen_w) == (True, None)
        assert log.parts[-2:] == [(Part.WARMUP, 200), (Part.SETTLED, 250)]
    assert fake_gpus.limits_w() == [250, 250]


@pytest.mark.parametrize("refused", [0, 1])
def test_profiling_ends_where_any_process_is_refused_a_limit(ranks, fake_gpus, refused):
    meet = threading.Barrier(2, timeout=10)

    def at_step(rank, step):
        if step == 4:
            meet.wait()
            if rank.rank == refused:
                fake_gpus.set(**{f"SET_{refused}": "denied"})
            meet.wait()

    for profiler, log in in_both(ranks, lambda rank: profile(rank, at_step)):
        assert (profiler.is_done, profiler.chosen_w) == (True, None)
        assert 150 not in [limit_w for _, limit_w in log.parts]
