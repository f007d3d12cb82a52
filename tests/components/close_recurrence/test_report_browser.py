import html
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib import image

from zeus_kfp.components.close_recurrence.html import render_html

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-features=IsolateSandboxedIframes "
    "--virtual-time-budget=10000 --hide-scrollbars --window-size=1200,1600"
).split()

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed to take a screenshot with")


def screenshot(document, folder):
    """Show a document as the KFP UI does, in a sandboxed iframe, and return its pixels."""
    wrapper, picture = folder / "wrapper.html", folder / "picture.png"
    frame = f'<iframe sandbox="allow-scripts" style="width:100%;height:1500px" srcdoc="{html.escape(document)}">'
    wrapper.write_text(f"<!doctype html><meta charset=utf-8>{frame}</iframe>", encoding="utf-8")
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", wrapper.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return np.round(image.imread(picture)[..., :3] * 255).astype(int)


def close_to(pixels, colour):
    wanted = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return int((np.abs(pixels - wanted).max(axis=-1) <= 3).sum())


def test_the_page_is_drawn_in_a_sandboxed_iframe(digits, tmp_path):
    pixels = screenshot(render_html(digits, run_id="run-12"), tmp_path)
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 200
    bars, lost, this_run = (close_to(pixels, colour) for colour in ("#2f7dc4", "#d9622b", "#fff6da"))
    assert bars > 10_000 and lost > 3_000 and this_run > 10_000


def test_hostile_names_draw_the_same_kind_of_page(build, tmp_path):
    hostile = "</style><style>*{display:none}</style><script>document.body.remove()</script>"
    from zeus_kfp.zeus_core.trial import Purpose, TrialState

    data = build([[(32, TrialState.REACHED, 5, 100, Purpose.EXPLORATION, hostile, hostile)]], job_id=hostile)
    assert close_to(screenshot(render_html(data), tmp_path), "#2f7dc4") > 10_000
