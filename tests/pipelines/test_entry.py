"""Plain functions travel by their source, and only those that can stand alone."""

import math

import pytest

from zeus_kfp.pipelines.recurring_training.entry import Entry, entry_of
from zeus_kfp.zeus_core.errors import EntryPointError


def test_a_string_travels_as_it_stands():
    assert entry_of("package.module:train") == Entry("package.module:train", "")
    assert entry_of(None) == Entry("", "")


def test_a_plain_function_travels_with_its_source():
    def train(trial: "Unknown"):  # noqa: F821
        import json

        return json.dumps(trial)

    entry = entry_of(train)
    namespace = {}
    exec(entry.source, namespace)
    assert entry.entry_point == "train"
    assert namespace["train"]([1]) == "[1]"


def uses_a_module_from_outside(trial):
    return math.sqrt(trial)


@pytest.mark.parametrize(
    ("code", "named"),
    [(uses_a_module_from_outside, "math"), (lambda trial: trial, "lambda"), (print, "print"), (3, "3")],
)
def test_code_that_cannot_stand_alone_is_refused_by_name(code, named):
    with pytest.raises(EntryPointError, match=named):
        entry_of(code)


def test_a_closure_is_refused_by_the_name_it_closes_over():
    learning_rate = 0.1

    def train(trial):
        return learning_rate

    with pytest.raises(EntryPointError, match="learning_rate"):
        entry_of(train)
