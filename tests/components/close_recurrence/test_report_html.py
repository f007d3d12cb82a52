import dataclasses
import math
import re
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest

from zeus_kfp.components.close_recurrence.html import render_html
from zeus_kfp.components.close_recurrence.report_tables import MAX_FAILURES, MAX_ROWS
from zeus_kfp.zeus_core.trial import Purpose, TrialState

E, S = Purpose.EXPLORATION, Purpose.SAMPLING
R, N, OOM, F, X = (TrialState(name) for name in ("reached", "not_reached", "oom", "failed", "expired"))
HOSTILE = '"><script>alert(1)</script><img src=http://x.test/a onerror=alert(2)>{{ 7*7 }}&amp;</svg></style>'
REFERENCES = {"src", "href", "xlink:href", "srcset", "action", "formaction", "data", "poster", "background", "ping"}
LOADING = {"script", "link", "iframe", "object", "embed", "base", "img", "image", "audio", "video", "form", "portal"}


class Page(HTMLParser):
    """What of a page a browser would act on."""

    def __init__(self, document):
        super().__init__()
        self.tags, self.attributes, self.declarations, self.text, self.css = [], [], [], [], []
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_decl(self, declaration):
        self.declarations.append(declaration)

    def handle_pi(self, data):
        self.declarations.append(data)

    def handle_data(self, data):
        (self.css if self.lasttag == "style" else self.text).append(data)

    def problems(self):
        values = [(name, value) for _, name, value in self.attributes]
        styles = "".join(self.css) + "".join(value for name, value in values if name not in ("xmlns", "xmlns:xlink"))
        return (
            [tag for tag in self.tags if tag in LOADING]
            + [value for name, value in values if name in REFERENCES and not value.startswith("#")]
            + [name for name, _ in values if name.startswith("on")]
            + re.findall(r"url\((?!#)[^)]*\)|@import|https?://[^\s\"']*|javascript:", styles)
            + [declaration for declaration in self.declarations if declaration != "doctype html"]
        )


def hostile_history(build):
    data = build([[(32, R, 5, 100, E)], [(64, F, 0, None, S, HOSTILE, HOSTILE)]], job_id=HOSTILE, user=HOSTILE)
    trials = tuple(
        dataclasses.replace(t, why=HOSTILE, node=HOSTILE, accelerator=HOSTILE, energy_source=HOSTILE, model_uri=HOSTILE)
        for t in data.trials
    )
    arms = tuple(dataclasses.replace(arm, status=f"ruled out: $\\frac{{1}}$ {HOSTILE}") for arm in data.arms)
    return dataclasses.replace(data, trials=trials, arms=arms)


def test_the_page_refers_to_nothing_outside_itself(digits):
    assert Page(render_html(digits, run_id="run-3")).problems() == []


@pytest.mark.parametrize(
    "broken",
    [
        '<img src="a.png">',
        "<style>@import 'a.css'</style>",
        '<p style="background: url(https://x.test)">',
        '<use xlink:href="http://x.test#a">',
        "<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN'>",
        "<p onclick=alert()>",
    ],
)
def test_the_check_for_references_finds_them(broken):
    assert Page(broken).problems()


def test_hostile_text_stays_text(build):
    page = Page(render_html(hostile_history(build), run_id=HOSTILE))
    assert page.problems() == []
    assert "".join(page.text).count("<script>alert(1)</script>") >= 8
    assert "{{ 7*7 }}" in "".join(page.text)


def test_the_page_forbids_itself_everything_but_styles(digits):
    policies = [value for _, name, value in Page(render_html(digits)).attributes if name == "content"]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policies


def test_the_pictures_share_no_id_and_point_at_ids_that_are_there(digits):
    document = render_html(digits)
    ids = [value for _, name, value in Page(document).attributes if name == "id"]
    assert len(ids) == len(set(ids)) and document.count("<svg ") == 2
    assert document.count("<style") == 1  # a drawing's own would apply to the whole page
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', document)) <= set(ids)
    assert "#010101" not in document and "var(--ink)" in document


def test_the_same_history_gives_the_same_page(digits):
    assert render_html(digits, run_id="run-1") == render_html(digits, run_id="run-1")


def test_the_page_tells_what_was_tried_what_failed_and_that_energy_is_estimated(digits):
    text = " ".join("".join(Page(render_html(digits, run_id="run-9")).text).split())
    for expected in (
        "Energy estimated, not measured",
        "1,024 ✕ → 128 ✓",
        "Trial 12 (recurrence 9) at batch size 128: failed.",
        "mat1 and mat2 shapes cannot be multiplied (64x63 and 64x32)",
        "ruled out: out of memory",
        "This run, recurrence 9, reached the target at batch size 256",
    ):
        assert expected in text


@pytest.mark.parametrize(
    "history",
    [
        [],
        [[(32, R, 5, 100, E)]],
        [[(1024, OOM, 0, None, E)]],
        [[(32, X, None, None, E), (32, F, None, None, E)]] * 3,
        [[(32, N, 5, 100, E)]],
        [[(32, R, 5, 1e308, E)], [(64, R, 5, 1e308, E)]],
        [[(32, R, 5, math.inf, E)], [(64, R, 5, 1e-9, E)]],
        [[(size, R, 5, 10.0**place, E)] for place, size in enumerate((8, 16, 32, 64, 128))],
    ],
)
def test_an_extreme_history_has_a_page_too(build, history):
    data = build(history, job_id="\U0001f40c ذكاء " + "n" * 240, beta_knob=math.inf)
    assert Page(render_html(data, run_id="run-1")).problems() == []


def test_arms_without_a_spread_or_with_an_endless_one_are_drawn(digits):
    arms = tuple(dataclasses.replace(arm, standard_deviation=math.inf) for arm in digits.arms)
    assert Page(render_html(dataclasses.replace(digits, arms=arms))).problems() == []


@pytest.fixture
def long_history(build):
    sizes = tuple(range(8, 8 + 256))
    cycle = [
        (8 + i % 256, (R, F)[i % 2], 5, 100.0 + i % 77 if i % 2 == 0 else None, S, "<" * 1000, "\"<&'" * 1000)
        for i in range(5000)
    ]
    return build([[first, first] for first in cycle], batch_sizes=sizes, default_batch_size=32)


def test_a_long_history_makes_a_short_page_that_says_what_it_leaves_out(long_history):
    started = time.perf_counter()
    document = render_html(long_history, run_id="run-5000")
    assert time.perf_counter() - started < 10  # about 1.5 s on an idle machine; a guard against squares of 10,000
    assert len(document.encode()) < 1_000_000
    assert f"The latest {MAX_ROWS} are shown; 9,800 earlier trials left out." in document
    assert f"The latest {MAX_FAILURES} are shown; 4,970 earlier such trials left out." in document


def test_importing_the_component_draws_in_no_plotting():
    code = (
        "import sys, zeus_kfp.components.close_recurrence; print(sorted({'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "matplotlib" not in result.stdout
