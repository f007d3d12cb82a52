"""Plain functions travel by their source, and only those that can stand alone."""

import functools
import math

import pytest

from zeus_kfp.pipelines.recurring_training.entry import Entry, entry_of
from zeus_kfp.zeus_core.errors import EntryPointError


def test_a_string_travels_as_it_stands():
    assert entry_of("package.module:train", "trial") == Entry("package.module:train", "")
    assert entry_of(None, "trial") == Entry("", "")


def test_a_plain_function_travels_with_its_source():
    def train(trial: "Unknown"):  # noqa: F821  # annotations travel unread
        import json

        return json.dumps(trial)

    entry = entry_of(train, "trial")
    namespace = {}
    exec(entry.source, namespace)
    assert entry.entry_point == "train"
    assert namespace["train"]([1]) == "[1]"


def test_a_nested_function_keeps_its_strings_of_several_lines():
    def train(trial):
        return """first
second
    third"""

    namespace = {}
    exec(entry_of(train, "trial").source, namespace)
    assert namespace["train"](None) == train(None) == "first\nsecond\n    third"


len = max  # noqa: A001  # what is to be refused
LEARNING_RATE = 0.1


def uses_a_module_from_outside(trial):
    return math.sqrt(trial)


def uses_a_builtin_that_its_module_replaced(trial):
    return len(trial)


@functools.wraps(open)
def open(*arguments):  # noqa: A001  # as notebooks do
    """What a notebook has for open: IPython's wrapper."""


def uses_what_a_notebook_has_for_a_builtin(trial):
    with open(trial.model_path, "w") as file:
        file.write("x")


def test_a_notebooks_wrapper_of_a_builtin_is_taken_for_the_builtin():
    assert "open(trial.model_path" in entry_of(uses_what_a_notebook_has_for_a_builtin, "trial").source


def has_a_default_from_outside(trial, learning_rate=LEARNING_RATE):
    return learning_rate


@functools.lru_cache
def is_cached(trial):
    return trial


def decorator(function):
    return function


@decorator
def is_decorated(trial):
    return trial


async def is_a_coroutine(trial):
    return trial


def is_a_generator(trial):
    yield trial


def takes_nothing():
    return 1


def takes_two(trial, other):
    return other


def holds_a_placeholder(trial):
    return "{{$.inputs}}"


class Trainer:
    def train(self, trial=None):
        return trial


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (uses_a_module_from_outside, "math"),
        (uses_a_builtin_that_its_module_replaced, "len"),
        (has_a_default_from_outside, "LEARNING_RATE"),
        (is_cached, "is no plain function"),
        (is_decorated, "@decorator"),
        (is_a_coroutine, "coroutine"),
        (is_a_generator, "generator"),
        (takes_nothing, "must take one argument, the trial"),
        (takes_two, "'other'"),
        (holds_a_placeholder, r"\{\{\$"),
        (Trainer.train, "is a method"),
        (Trainer().train, "is no plain function"),
        (lambda trial: trial, "lambda"),
        (print, "print"),
        (3, "3"),
    ],
)
def test_code_that_cannot_stand_alone_is_refused_by_name(code, named):
    with pytest.raises(EntryPointError, match=named):
        entry_of(code, "trial")


def test_a_closure_is_refused_by_the_name_it_closes_over():
    learning_rate = 0.1

    def train(trial):
        return learning_rate

    with pytest.raises(EntryPointError, match="learning_rate"):
        entry_of(train, "trial")
