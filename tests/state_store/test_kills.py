"""A process that is killed anywhere leaves a store that a replay of its run brings to the same rows, bit for bit."""

import itertools
import multiprocessing
import random
import signal

import pytest

from tests.state_store.driving import dump, killed_script, run_whole_script
from zeus_kfp.state_store import StateStore

RECURRENCES = 4


@pytest.fixture(scope="module")
def fresh():
    """Start processes quickly, each forked from a clean one that has imported the store."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.state_store.driving", "zeus_kfp.state_store", "numpy", "alembic.command"])
    return context


def run_in(context, function, *arguments, **options):
    process = context.Process(target=function, args=arguments, kwargs=options)
    process.start()
    process.join()
    return process.exitcode


def check_consistent(url):
    with StateStore(url) as store:
        for overview in store.jobs():
            job_id = overview.job.spec.job_id
            assert store.learnt(job_id) == store.learnt_from_rows(job_id)
            assert [t.number for t in store.trials(job_id)] == list(range(1, overview.job.trial_count + 1))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('undisturbed') / 'store.db'}"
    run_whole_script(url, RECURRENCES)
    return dump(url)


def test_the_script_is_rich_and_both_databases_keep_the_same(store_url, undisturbed):
    run_whole_script(store_url, RECURRENCES)
    assert dump(store_url) == undisturbed
    assert len(undisturbed["trial"]) >= 6 and len(undisturbed["profile"]) >= 6
    assert len({dict(row)["state"] for row in undisturbed["trial"]}) >= 3


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_kill_at_any_commit_loses_and_doubles_nothing(new_store_url, fresh, undisturbed, before):
    for commit in itertools.count(1):
        url = new_store_url()
        exit_code = run_in(fresh, killed_script, url, RECURRENCES, commit, before=before)
        if exit_code == 0:  # the script has no more commits than that
            break
        assert exit_code == -signal.SIGKILL
        check_consistent(url)
        run_whole_script(url, RECURRENCES)
        assert dump(url) == undisturbed, commit
    assert commit > 20


def test_a_kill_at_any_moment_loses_and_doubles_nothing(new_store_url, fresh, undisturbed):
    moments = random.Random(7)
    killed = 0
    for _ in range(10):
        url = new_store_url()
        process = fresh.Process(target=run_whole_script, args=(url, RECURRENCES))
        process.start()
        process.join(moments.uniform(0.0, 0.4))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
        check_consistent(url)
        run_whole_script(url, RECURRENCES)
        assert dump(url) == undisturbed
    assert killed >= 1
