"""Whatever a server, a database or a role is set to, the same comes back that was given."""

import dataclasses
from datetime import timedelta

import psycopg2
import pytest
from sqlalchemy import make_url

from tests.state_store.driving import NOT_REACHED, SPEC
from zeus_kfp.state_store import StateStore
from zeus_kfp.zeus_core import Profile
from zeus_kfp.zeus_core.errors import StoreError

NAME = "%s %% %(x)s :name $1 \\ \\' ' \" ; -- /* é 😀"
TOLD = dataclasses.replace(
    NOT_REACHED, metric=1 / 3, energy_j=1e15 / 3, time_s=2 / 3, error=NAME, power_limits_found_w={NAME: 100 / 3}
)


def check_that_what_is_given_comes_back(url):
    spec = dataclasses.replace(SPEC, job_id=NAME, target_metric=2 / 3)
    with StateStore(url) as store:
        store.open_recurrence(spec, NAME, data_version=NAME)
        store.suggest(NAME, NAME, 1)
        told = store.report(NAME, NAME, 1, TOLD, [Profile(16, "train", 100 / 3, 200 / 3, 1000 / 3)])
        # The run is read another way here than it is listed by.
        assert store.note_lost_pod(NAME, NAME, 1, "node", {}) == told == store.trials(NAME)[0]
        assert (told.metric, told.energy_j, told.time_s, told.error) == (1 / 3, 1e15 / 3, 2 / 3, NAME)
        assert told.power_limits_found_w == {NAME: 100 / 3} and told.issued_at.utcoffset() == timedelta(0)
        assert store.profiles(NAME)[0].profile == Profile(16, "train", 100 / 3, 200 / 3, 1000 / 3)
        assert store.job(NAME).spec == spec
        assert store.learnt(NAME) == store.learnt_from_rows(NAME)


@pytest.mark.parametrize(
    "changes",
    [
        ("extra_float_digits = 0", "client_encoding = 'LATIN1'", "TimeZone = 'Asia/Kathmandu'"),
        ("extra_float_digits = -5", "client_encoding = 'SQL_ASCII'", "TimeZone = 'Africa/Monrovia'"),
        (
            "standard_conforming_strings = off",
            "DateStyle = 'SQL, DMY'",
            "default_transaction_isolation = 'serializable'",
        ),
    ],
)
def test_settings_of_the_database_change_nothing(new_postgresql, changes):
    url = new_postgresql()
    with psycopg2.connect(url) as connection:
        for change in changes:
            connection.cursor().execute(f"ALTER DATABASE {make_url(url).database} SET {change}")
    check_that_what_is_given_comes_back(url)


@pytest.fixture
def new_encoded(postgresql_uri):
    """Return a function that makes an empty database of an encoding and returns its URL."""

    def make(encoding):
        connection = psycopg2.connect(postgresql_uri)
        connection.autocommit = True
        connection.cursor().execute(f"DROP DATABASE IF EXISTS in_{encoding}")
        connection.cursor().execute(
            f"CREATE DATABASE in_{encoding} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
        connection.close()
        return postgresql_uri.replace("/postgres?", f"/in_{encoding}?".lower())

    return make


def test_a_database_of_no_encoding_keeps_every_name(new_encoded):
    check_that_what_is_given_comes_back(new_encoded("SQL_ASCII"))


def test_a_name_that_the_databases_encoding_lacks_is_a_typed_error(new_encoded):
    with StateStore(new_encoded("LATIN1")) as store:
        assert store.open_recurrence(dataclasses.replace(SPEC, job_id="é"), "é").granted
        with pytest.raises(StoreError, match='no equivalent in encoding "LATIN1"'):
            store.open_recurrence(dataclasses.replace(SPEC, job_id="😀"), "run")
        assert [overview.job.spec.job_id for overview in store.jobs()] == ["é"]
