import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus_kfp.components.close_recurrence.markdown import MAX_CHARACTERS, escaped, render_markdown
from zeus_kfp.zeus_core.trial import Purpose, TrialState

E, S = Purpose.EXPLORATION, Purpose.SAMPLING
R, F = TrialState.REACHED, TrialState.FAILED


def unescaped_pipes(line):
    return len(re.findall(r"(?<!\\)\|", line))


def test_the_twin_says_what_the_page_says(digits):
    document = render_markdown(digits, run_id="run-12")
    assert document.startswith("# Recurring training: digits-nightly\n\n**12 recurrences, exploration included,")
    assert "| 7 | reached | 1,024 ✕ → 128 ✓ | 2 | 11 | 25.1 | ≈ 727 | ≈ 790 | 56 % |" in document
    assert "| **12** | **reached** | **256 ✓** |" in document
    assert "Energy estimated, not measured" in document


def test_every_row_of_a_table_has_as_many_cells(digits):
    trials = tuple(dataclasses.replace(trial, why="a|b\n|c\\|d", reason="|") for trial in digits.trials)
    document = render_markdown(dataclasses.replace(digits, trials=trials))
    for table in re.findall(r"(?:^\|.*\n)+", document, flags=re.MULTILINE):
        assert len({unescaped_pipes(line) for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a|b", r"a\|b"),
        ("<script>", "&lt;script&gt;"),
        ("![x](http://x.test)", r"\!\[x\]\(http&#58;//x.test\)"),
        ("a\n\n# b", r"a \# b"),
        ("`*_~$^", r"\`\*\_\~\$\^"),
        ("\\", "\\\\"),
    ],
)
def test_markup_in_other_peoples_text_is_escaped(text, expected):
    assert escaped(text) == expected


@given(st.text(alphabet="`|<>\\[]()!#*_ \nab", max_size=60))
def test_escaped_text_holds_no_markup(text):
    without_escapes = re.sub(r"\\[^a-z ]", "", escaped(text))
    assert not set(without_escapes) & set("`|<>[]()!#*_\n")


def test_an_error_cannot_leave_its_block(build):
    error = "x\n```\n# out\n<script>\n`````\n"
    document = render_markdown(build([[(32, F, 0, None, E, "crash", error)]]))
    assert "\n``````text\nx\n```\n# out\n<script>\n`````\n``````\n" in document


@pytest.mark.parametrize("history", [[], [[(32, F, None, None, E)]]])
def test_a_job_without_results_has_a_twin_too(build, history):
    assert "## The job" in render_markdown(build(history))


def test_a_long_history_fits_what_the_ui_shows(build):
    cycle = [[(32, (R, F)[i % 2], 5, 100.0, S, "|" * 1000, "`|" * 2000)] for i in range(3000)]
    document = render_markdown(build(cycle))
    assert len(document) <= MAX_CHARACTERS
    assert "The latest 200 are shown; 2,800 earlier trials left out." in document
