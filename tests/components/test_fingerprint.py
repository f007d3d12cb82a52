"""The version of raw data: what a function tells, or a hash of files by their content and names alone."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.components.fingerprint_data.fingerprint import fingerprint, fingerprint_of_paths
from zeus_kfp.zeus_core.errors import EntryPointError, InvalidValueError


def told(source, arguments="{}"):
    return fingerprint("tell", entry_source=source, arguments=arguments)


@pytest.mark.parametrize(
    ("returned", "version"), [("'2027-01-31'", "2027-01-31"), ("7", "7"), ("0", "0"), ("'x' * 64", "x" * 64)]
)
def test_a_function_tells_the_version(returned, version):
    assert told(f"def tell(): return {returned}") == version


def test_a_long_version_is_told_by_its_hash():
    versions = {told(f"def tell(): return '{letter}' * 1000") for letter in "ab"}
    assert {len(version) for version in versions} == {64} and len(versions) == 2


def test_the_function_gets_its_arguments():
    assert told("def tell(table): return table + '@3'", '{"table": "users"}') == "users@3"


@pytest.mark.parametrize("returned", ["''", "None", "1.5", "True", "['v']", "float('nan')"])
def test_what_is_no_version_is_an_error(returned):
    with pytest.raises(EntryPointError, match="a fingerprint of data must be text"):
        told(f"def tell(): return {returned}")


def test_a_function_or_arguments_that_are_not_there_are_errors():
    with pytest.raises(EntryPointError, match="module:function"):
        fingerprint("tell", entry_source="", arguments="{}")
    with pytest.raises(EntryPointError, match="doesn't define it"):
        told("def other(): return 1")
    with pytest.raises(InvalidValueError, match="fingerprint arguments"):
        told("def tell(): return 1", "[1]")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.csv").write_text("1")
    (tmp_path / "y.csv").write_text("2")
    return tmp_path


def test_files_are_hashed_by_content_and_name_and_not_by_time(folder):
    before = fingerprint_of_paths([str(folder)])
    os.utime(folder / "y.csv", (1, 1))
    assert fingerprint_of_paths([str(folder)]) == before
    for change in (
        lambda: (folder / "y.csv").write_text("3"),
        lambda: (folder / "y.csv").rename(folder / "z.csv"),
        lambda: (folder / "new").touch(),
        lambda: (folder / "a" / "x.csv").unlink(),
    ):
        change()
        after = fingerprint_of_paths([str(folder)])
        assert after != before
        before = after


def test_paths_are_hashed_by_the_same_name_wherever_they_lie(folder, tmp_path_factory):
    twin = tmp_path_factory.mktemp("twin") / "z"
    twin.write_text("2")
    assert fingerprint_of_paths([str(twin)]) == fingerprint_of_paths([str(folder / "y.csv")])


def test_a_path_that_is_not_there_is_an_error_that_says_what_to_give():
    with pytest.raises(EntryPointError, match="/no/such can't be read .* configure_task mounts"):
        fingerprint(
            "zeus_kfp.components.fingerprint_data.fingerprint:fingerprint_of_paths",
            entry_source="",
            arguments=json.dumps({"paths": ["/no/such"]}),
        )


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=3), st.lists(st.binary(max_size=4), min_size=1, max_size=3))
def test_other_files_have_another_hash(tmp_path_factory, ours, theirs):
    def of(contents):
        folder = tmp_path_factory.mktemp("files")
        paths = [folder / str(place) for place in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return fingerprint_of_paths([str(path) for path in paths])

    assert (of(ours) == of(theirs)) is (ours == theirs)
