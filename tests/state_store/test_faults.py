"""A database that is damaged, full, read-only, restarted or cut off: a typed error or a retry, never half a row."""

import dataclasses
import multiprocessing
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import make_url

from tests.state_store.driving import NOT_REACHED, SPEC, check_books, dump, run_trials, run_whole_script
from tests.state_store.servers import OwnServer, pooler
from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.database import on_local_file_system
from zeus_kfp.zeus_core import TrialState
from zeus_kfp.zeus_core.errors import StoreError, StoreUnavailableError

NOBODY = 65534


@pytest.fixture
def sqlite_path(tmp_path):
    path = tmp_path / "store.db"
    run_whole_script(f"sqlite:///{path}", 2)
    return path


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.9])
def test_a_file_cut_short_is_a_typed_error_or_an_empty_store(sqlite_path, kept):
    with sqlite_path.open("r+b") as file:
        file.truncate(int(sqlite_path.stat().st_size * kept))
    with StateStore(f"sqlite:///{sqlite_path}", patience_s=0.1) as store:
        if kept == 0.0:
            assert store.jobs() == ()
        else:
            with pytest.raises(StoreError, match="store.db"):
                store.jobs()
                run_trials(store, 1)
                dump(f"sqlite:///{sqlite_path}")


def in_child(function, *arguments):
    """Run a function in a process of its own, which may give up rights, and return what it says."""
    context = multiprocessing.get_context("fork")
    there, here = context.Pipe()

    def run():
        here.send(function(*arguments))

    process = context.Process(target=run)
    process.start()
    process.join(60)
    return there.recv() if there.poll(0) else f"exit code {process.exitcode}"


def write_without_rights(path):
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with StateStore(f"sqlite:///{path}", patience_s=0.1) as store:
        try:
            store.open_recurrence(SPEC, "another")
        except StoreUnavailableError as error:
            return str(error)
    return "written"


@pytest.fixture
def folder_for_all(tmp_path):
    """Return a folder that a process without rights can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder != Path("/tmp") and folder.is_relative_to("/tmp"):
            folder.chmod(0o755)
    return tmp_path


def test_a_file_that_may_not_be_written_is_a_typed_error(sqlite_path, folder_for_all):
    before = dump(f"sqlite:///{sqlite_path}")
    sqlite_path.chmod(0o444)
    folder_for_all.chmod(0o555)
    said = in_child(write_without_rights, sqlite_path)
    folder_for_all.chmod(0o755)
    sqlite_path.chmod(0o644)
    assert "can't be used" in said and "check that its folder is there and may be written to" in said
    assert dump(f"sqlite:///{sqlite_path}") == before


def fill_up(path):
    """Run trials until the system refuses to let any file grow."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with StateStore(f"sqlite:///{path}", patience_s=0.1) as store:
        run_trials(store, 1, "first")
        size = max(file.stat().st_size for file in path.parent.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 500_000, size + 500_000))
        try:
            run_trials(store, 10_000)
        except StoreUnavailableError as error:
            return str(error)
    return "written"


def test_a_disk_that_is_full_is_a_typed_error_and_leaves_no_half_of_anything(tmp_path):
    path = tmp_path / "store.db"
    assert "check that its folder is there and may be written to, that the disk is not full" in in_child(fill_up, path)
    with StateStore(f"sqlite:///{path}") as store:
        trials = store.trials("job")
        assert len(trials) > 3 and {t.state for t in trials[:-1]} == {TrialState.NOT_REACHED}
        assert [t.number for t in trials] == list(range(1, len(trials) + 1))
        assert store.learnt("job") == store.learnt_from_rows("job")
        run_trials(store, 1, "again")
        assert len(store.trials("job")) == len(trials) + 1


def test_a_lock_that_is_never_given_back_is_a_typed_error(sqlite_path):
    holder = sqlite3.connect(sqlite_path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with StateStore(f"sqlite:///{sqlite_path}", patience_s=0.2) as store:
        with pytest.raises(StoreUnavailableError, match="locked"):
            store.open_recurrence(SPEC, "another")
        assert len(store.recurrences("job")) == 2
        holder.execute("ROLLBACK")
        assert store.open_recurrence(SPEC, "another").granted


def test_a_lock_on_a_job_that_is_never_given_back_is_a_typed_error(postgresql_uri, new_postgresql):
    url = new_postgresql()
    run_whole_script(url, 1)
    holder = psycopg2.connect(url)
    holder.cursor().execute("SELECT * FROM job FOR UPDATE")
    with StateStore(url, patience_s=0.2) as store:
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            store.open_recurrence(SPEC, "another")
        holder.rollback()
        assert store.open_recurrence(SPEC, "another").granted
    holder.close()


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("53100", "free space"),
        ("25006", "not its standby"),
        ("42501", "grant the URL's user"),
        ("53200", "server runs"),
        ("57014", "longer statement_timeout"),
        ("3F000", "search_path"),
    ],
)
def test_a_server_that_refuses_midway_is_a_typed_error_and_leaves_no_half_of_anything(new_postgresql, state, advice):
    url = new_postgresql()
    with StateStore(url, patience_s=1) as store:
        run_trials(store, 1)
        store.open_recurrence(SPEC, "next")
        before, admin = dump(url), psycopg2.connect(url)
        admin.autocommit = True
        refuse = f"BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{state}'; END"
        admin.cursor().execute(f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {refuse} $$")
        admin.cursor().execute("CREATE TRIGGER refuse AFTER INSERT ON trial FOR EACH ROW EXECUTE FUNCTION refuse()")
        with pytest.raises(StoreUnavailableError, match=advice):
            store.suggest("job", "next", 1)
        assert dump(url) == before
        admin.cursor().execute("DROP TRIGGER refuse ON trial")
        admin.close()
        store.suggest("job", "next", 1)
        store.report("job", "next", 1, NOT_REACHED)
        check_books(store, 2)


@pytest.mark.parametrize("state", ["57014", "40P01", "40001", "57P01"])
def test_a_fault_that_passes_is_met_once_and_the_operation_is_run_again(new_postgresql, state):
    url = new_postgresql()
    with StateStore(url) as store:
        run_trials(store, 1)
        store.open_recurrence(SPEC, "next")
        admin = psycopg2.connect(url)
        admin.autocommit = True
        # A sequence counts on, whatever is rolled back.
        refuse = f"IF nextval('met') = 1 THEN RAISE EXCEPTION 'refused' USING ERRCODE = '{state}'; END IF; RETURN NULL;"
        admin.cursor().execute(
            "CREATE SEQUENCE met; "
            f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {refuse} END $$; "
            "CREATE TRIGGER refuse AFTER INSERT ON trial FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        admin.close()
        store.suggest("job", "next", 1)
        store.report("job", "next", 1, NOT_REACHED)
        check_books(store, 2)


@pytest.fixture
def own_server(postgresql_folder):
    server = OwnServer(postgresql_folder)
    yield server
    server.server.cleanup()


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_server_restarted_midway_loses_and_doubles_nothing(own_server, how):
    url = own_server.server.get_uri()
    with StateStore(url) as store:
        store.upgrade()
        begun, failed = threading.Event(), []

        def work():
            try:
                run_trials(store, 5)
                begun.set()
                run_trials(store, 30, "later")
            except BaseException as error:
                failed.append(error)
                begun.set()

        worker = threading.Thread(target=work)
        worker.start()
        begun.wait()
        own_server.control("restart", "-m", how)
        worker.join()
        assert failed == []
        check_books(store, 35)


def test_a_server_that_is_away_is_waited_for(own_server, caplog, record):
    url = own_server.server.get_uri()
    with StateStore(url) as store:
        run_trials(store, 1)
        own_server.control("stop", "-m", "fast")
        with StateStore(url, patience_s=0.3) as impatient, pytest.raises(StoreUnavailableError, match="check that the"):
            impatient.jobs()
        back_s = []

        def restart():
            own_server.control("restart")
            back_s.append(time.monotonic())

        restarting = threading.Thread(target=restart)
        restarting.start()
        run_trials(store, 2, "later")
        restarting.join()
        recovery_s = max(time.monotonic() - back_s[0], 0.0)
        check_books(store, 3)
    record(f"two trials were taken {recovery_s:.1f} s after the server's return")
    assert recovery_s < 30  # what the store promises
    assert "trying again for up to 30 s" in caplog.text


@pytest.fixture
def small_disk(postgresql_folder):
    """Return a folder on a disk of its own, which a test may fill."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=160m,mode=755", "tmpfs", postgresql_folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    yield Path(postgresql_folder)
    subprocess.run(["umount", postgresql_folder], check=True)


def test_a_full_disk_of_the_server_is_a_typed_error_and_what_was_kept_before_stays(small_disk):
    server = OwnServer(small_disk / "postgresql")
    try:
        with StateStore(server.server.get_uri()) as store:
            run_trials(store, 2)
            fill_disk(small_disk / "ballast")
            kept = trials_until_refused(store, match="No space left on device.*free space on the server's disk")
            assert [t.state for t in store.trials("job")][: 2 + kept] == [TrialState.NOT_REACHED] * (2 + kept)
            assert store.learnt("job") == store.learnt_from_rows("job")
            (small_disk / "ballast").unlink()
            run_trials(store, 1, "with space again")
            finished = [t for t in store.trials("job") if t.state is TrialState.NOT_REACHED]
            assert len(finished) == 2 + kept + 1
            assert store.learnt("job") == store.learnt_from_rows("job")
    finally:
        server.server.cleanup()


def fill_disk(path):
    with suppress(OSError), path.open("wb") as file:
        while True:
            file.write(bytes(65536))


def trials_until_refused(store, match):
    """Report trials with much to keep until one is refused, and return how many were taken."""
    told = dataclasses.replace(NOT_REACHED, error="out of patience " * 250)
    taken = 0
    with pytest.raises(StoreUnavailableError, match=match):
        while True:
            store.open_recurrence(SPEC, f"full-{taken}")
            store.suggest("job", f"full-{taken}", 1)
            store.report("job", f"full-{taken}", 1, told)
            store.close_recurrence("job", f"full-{taken}")
            taken += 1
    return taken


@pytest.mark.parametrize("pool_mode", ["session", "transaction"])
def test_a_pooler_with_fewer_connections_than_processes_changes_nothing(new_postgresql, postgresql_folder, pool_mode):
    with pooler(make_url(new_postgresql()), Path(postgresql_folder), pool_mode) as url:

        def work(number):
            with StateStore(url) as store:
                run_trials(store, 5, f"of {number}")

        with StateStore(url) as store:
            store.upgrade()
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(work, range(8)))
            check_books(store, 40)


class CuttingProxy:
    """Passes a connection on to a server, and cuts some off once their COMMIT is on its way: nobody hears of it."""

    def __init__(self, server_socket, commits):
        self.commits, self.seen, self.cut = set(commits), 0, 0
        self.server_socket = server_socket
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):  # closed at the test's end
            while True:
                client, _ = self.listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self.server_socket)
                for pair, of_client in (((client, server), True), ((server, client), False)):
                    threading.Thread(target=self._pass_on, args=(*pair, of_client), daemon=True).start()

    def _pass_on(self, source, to, of_client):
        with suppress(OSError):  # its other half was cut off
            while data := source.recv(65536):
                is_last = of_client and self._is_cut_at(data)
                if is_last:
                    # No answer comes back; the server still takes the COMMIT.
                    source.shutdown(socket.SHUT_RDWR)
                to.sendall(data)
                if is_last:
                    to.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def _is_cut_at(self, data):
        if not (data[:1] == b"Q" and data.endswith(b"COMMIT\0")):
            return False
        self.seen += 1
        is_cut = self.seen in self.commits
        self.cut += is_cut
        return is_cut


def test_a_connection_cut_off_inside_a_commit_loses_and_doubles_nothing(postgresql_uri, new_postgresql):
    url = make_url(new_postgresql())
    with StateStore(url.render_as_string(hide_password=False)) as store:
        store.upgrade()
    # Of every operation in turn: four of them make a trial, and one that was cut off comes again.
    proxy = CuttingProxy(f"{url.query['host']}/.s.PGSQL.5432", range(3, 60, 4))
    through = url.set(host="127.0.0.1", port=proxy.port, query={})
    with StateStore(through.render_as_string(hide_password=False)) as store:
        for number in range(20):
            run_trials(store, 1, f"run-{number}")
        check_books(store, 20)
        assert store.recurrence("job", "run-19-0").number == 20
    assert proxy.cut == 15
    proxy.listener.close()


def test_connections_cut_off_midway_lose_and_double_nothing(postgresql_uri, new_postgresql):
    url = new_postgresql()
    admin = psycopg2.connect(postgresql_uri)
    admin.autocommit = True
    cut_off = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
    with StateStore(url) as store:
        for number in range(30):
            if number % 3 == 0:
                admin.cursor().execute(cut_off, (url.split("/")[3].split("?")[0],))
            run_trials(store, 1, f"run-{number}")
        check_books(store, 30)
    admin.close()


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/data/store.db", True),
        ("/shared/a/store.db", False),
        ("/shared files/store.db", False),
        ("/pod/store.db", False),
    ],
)
def test_a_file_system_that_machines_share_is_told_from_a_disk(tmp_path, path, local):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/vda / ext4 rw 0 0\nserver:/export /shared nfs4 rw 0 0\n"
        "//server/files /shared\\040files cifs rw 0 0\nfuse /pod fuse.gcsfuse rw 0 0\n"
    )
    assert on_local_file_system(path, mounts) is local
