"""Axes and SVG for pictures that stand inside a page.

Colours are custom properties of the page's style sheet, so that one drawing serves light and dark.
"""

import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Stand-ins that matplotlib accepts as colours; each becomes the page's custom property of that name.
INK, MUTED, LINE, SPENT, LOST, OFF, SHADE, DEFAULT = (f"#0{digit}0{digit}0{digit}" for digit in range(1, 9))
_PROPERTIES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    SPENT: "var(--spent)",
    LOST: "var(--lost)",
    OFF: "var(--off)",
    SHADE: "var(--shade)",
    DEFAULT: "var(--default)",
}

_LARGEST_DRAWN = 1e30


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing for a page: an SVG element, and in words what it shows."""

    svg: str
    caption: str


def new_axes(width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure of ``width`` × ``height`` inches and its plain axes; nothing global is touched."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(LINE)
    axes.tick_params(color=LINE, labelcolor=MUTED)
    axes.xaxis.label.set_color(MUTED)
    axes.yaxis.label.set_color(MUTED)
    return figure, axes


def drawable(values: Iterable[float | None]) -> list[float]:
    """Return the values that axes can hold: known, finite and not astronomic."""
    return [value for value in values if value is not None and math.isfinite(value) and value < _LARGEST_DRAWN]


def legend(figure: Figure, handles: Iterable[Any]) -> None:
    """Put a legend in one line above the axes."""
    drawn = list(handles)
    figure.legend(
        handles=drawn, loc="outside upper left", ncols=len(drawn), frameon=False, labelcolor=MUTED, fontsize=9
    )


def picture(figure: Figure, *, name: str, title: str, caption: str) -> Picture:
    """Return the figure as an SVG element whose ids all start with ``name``, so that a page may hold several.

    Args:
        figure: The drawing.
        name: Prefix of its ids, unique in the page: a plain word.
        title: What it is called, for those who hear the page.
        caption: What it shows.
    """
    stream = io.StringIO()
    # Text stays text (small, read by machines too); the salt makes the same drawing the same bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "zeus-kfp"}):
        figure.savefig(stream, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Type")))
    return Picture(_inlined(stream.getvalue(), name, title, caption), caption)


def _inlined(document: str, name: str, title: str, caption: str) -> str:
    # The prolog names a document type on another host, and the style sheet would apply to the whole page.
    body = document[document.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style\b.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
    body = re.sub(r'(\bid="|xlink:href="#|url\(#)', rf"\g<1>{name}-", body)
    for colour, property_ in _PROPERTIES.items():
        body = body.replace(colour, property_)
    viewbox = re.search(r'viewBox="[^"]*"', body)
    assert viewbox is not None
    spoken = f'role="img" aria-labelledby="{name}-title {name}-caption"'
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {viewbox[0]} {spoken}>'
    )
    heard = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-caption">{escape(caption)}</desc>'
    return opening + heard + body[body.index(">") + 1 :].rstrip()
