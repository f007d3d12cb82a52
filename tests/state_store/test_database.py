"""The database itself: its schema, its faults, many processes at once, and a password that never shows."""

import logging
import subprocess
import sys
import traceback
from contextlib import ExitStack

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, text

from zeus_kfp.state_store import StateStore
from zeus_kfp.state_store.database import Database
from zeus_kfp.state_store.schema import VERSION_TABLE
from zeus_kfp.state_store.statements import rows
from zeus_kfp.state_store.tables import JOB, METADATA
from zeus_kfp.zeus_core import JobSpec, TrialOutcome, TrialState
from zeus_kfp.zeus_core.errors import InvalidValueError, StoreUnavailableError, StoreVersionError

SPEC = JobSpec("job", (8, 16, 32), 16, target_metric=0.9, max_retries=1000, max_concurrent_recurrences=100)
REACHED = TrialOutcome(
    TrialState.NOT_REACHED, epochs=1, metric=0.1, energy_j=1.0, time_s=1.0, energy_source="nvml", max_power_w=1.0
)


def upgrade(url):
    with StateStore(url) as store:
        store.upgrade()
        return store.check()


def run_trials(url, number, count):
    numbers = []
    with StateStore(url) as store:
        store.open_recurrence(SPEC, f"run-{number}")
        for slot in range(1, count + 1):
            numbers.append(store.suggest("job", f"run-{number}", slot).number)
            store.report("job", f"run-{number}", slot, REACHED)
    return numbers


def test_the_migrated_schema_is_that_of_the_tables(store_url):
    upgrade(store_url)
    with Database(store_url).engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_a_newer_schema_is_refused_with_what_to_do(store_url):
    upgrade(store_url)
    with Database(store_url).connection(write=True) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with StateStore(store_url) as store, pytest.raises(StoreVersionError, match="'9999'.*upgrade zeus-kfp"):
        store.jobs()


def test_foreign_tables_of_the_same_name_are_left_alone(store_url):
    with Database(store_url).connection(write=True) as connection:
        connection.execute(text("CREATE TABLE job (id INTEGER)"))
    with StateStore(store_url) as store, pytest.raises(StoreVersionError, match="'job'"):
        store.jobs()


@pytest.mark.parametrize(
    "url", ["", "mysql://h/d", "not a url", "sqlite://", "sqlite:///:memory:", "sqlite:////tmp/store.db?mode=ro"]
)
def test_a_url_of_no_supported_kind_is_refused(url):
    with pytest.raises(InvalidValueError, match="sqlite:////absolute/path"):
        StateStore.from_environment({"ZEUS_KFP_STORE_URL": url})


@pytest.mark.parametrize("url", ["postgresql://u:p@ss@h/d", "postgresql://u:p@s/s@h/d"])
def test_an_unquoted_password_is_refused_and_not_shown(url):
    with pytest.raises(InvalidValueError, match="quote the password") as error:
        StateStore(url)
    assert "ss@h" not in str(error.value) and "s@h" not in str(error.value)


@pytest.mark.parametrize(
    "part", ["user:c%40nary@h/d%00", "user:c%40nary%00@h/d", "user:c%40nary@h\udc80/d", "u" * 10_001]
)
def test_a_url_with_characters_that_no_server_takes_is_refused_and_not_shown(part):
    with pytest.raises(InvalidValueError, match="URL") as error:
        StateStore(f"postgresql://{part}")
    assert "nary" not in "".join(traceback.format_exception(error.value))


def test_the_line_end_of_a_secret_is_no_part_of_the_url(store_url):
    with StateStore.from_environment({"ZEUS_KFP_STORE_URL": f"{store_url}\n"}) as store:
        assert store.jobs() == ()


def test_any_number_of_transactions_are_open_at_once(store_url):
    with StateStore(store_url) as store, ExitStack() as all_at_once:
        store.upgrade()
        # The pool would wait as long for another's connection.
        store._database.engine.pool._timeout = 0
        for _ in range(30):
            transaction = all_at_once.enter_context(store._database.transaction(write=False))
            assert rows(transaction, select(JOB)) == []


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with StateStore(f"sqlite:///{path}") as store, pytest.raises(StoreUnavailableError, match="store.db"):
        store.jobs()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    url = f"sqlite:///{tmp_path / 'nowhere' / 'store.db'}"
    with StateStore(url) as store, pytest.raises(StoreUnavailableError, match="nowhere"):
        store.jobs()


def test_an_unreachable_server_is_named_without_its_password(caplog):
    caplog.set_level(logging.DEBUG)
    with StateStore("postgresql://user:c%40nary@127.0.0.1:1/database", patience_s=0.2) as store:
        with pytest.raises(StoreUnavailableError, match="127.0.0.1:1") as error:
            store.jobs()
        shown = repr(store) + "".join(traceback.format_exception(error.value)) + caplog.text
    assert "c@nary" not in shown and "c%40nary" not in shown


def test_a_password_that_needs_quoting_works(postgresql_with_password):
    with StateStore(postgresql_with_password) as store:
        assert store.open_recurrence(SPEC, "run").granted
        assert "c@nary" not in repr(store)


def test_a_second_process_goes_on_from_what_the_first_has_kept(store_url):
    run_trials(store_url, 1, 2)
    code = (
        "import sys; from zeus_kfp.state_store import StateStore; print(StateStore(sys.argv[1]).job('job').trial_count)"
    )
    result = subprocess.run([sys.executable, "-c", code, store_url], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "2"


def test_importing_the_store_brings_nothing_heavy():
    heavy = "{'torch', 'matplotlib', 'kubernetes', 'kfp', 'alembic'}"
    code = f"import sys; import zeus_kfp.state_store; print(sorted({heavy} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
