"""The report as Markdown: the same words and tables as the HTML page, without its pictures."""

import re

from zeus_kfp.components.close_recurrence import report_story as story
from zeus_kfp.components.close_recurrence import report_tables as tables
from zeus_kfp.components.close_recurrence.report_caveats import caveats
from zeus_kfp.components.close_recurrence.report_data import ReportData
from zeus_kfp.components.close_recurrence.report_format import line
from zeus_kfp.components.close_recurrence.report_knobs import knobs

MAX_CHARACTERS = 400_000
"""The KFP UI shows no more of a Markdown artifact."""

# What Markdown would read as markup; HTML is written as entities since not every renderer lets it be escaped.
_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|~$^])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def render_markdown(data: ReportData, *, run_id: str | None = None) -> str:
    """Return the report of a job as Markdown of at most 400,000 characters.

    Args:
        data: The job's history.
        run_id: The KFP run at hand, whose rows are set in bold; None for none.
    """
    sections = [
        f"# Recurring training: {escaped(line(data.job.spec.job_id, at_most=255))}",
        _headline(data, run_id),
        "## Recurrences\n\n" + _table(tables.recurrence_table(data, run_id)),
        "## Batch sizes\n\n" + _table(tables.arm_table(data)),
        "## Trials\n\n" + _table(tables.trial_table(data, run_id)),
        "## What did not reach the target\n\n" + _failures(data),
        "## The job\n\n" + _table(knobs(data)),
    ]
    return _fitting("\n\n".join(sections) + "\n")


def escaped(text: str) -> str:
    """Return plain text in which Markdown and HTML find no markup, as one line."""
    without_html = "".join(_ENTITIES.get(character, character) for character in " ".join(text.split()))
    # A scheme is broken up by an entity, or renderers would make a link of it.
    return _MARKUP.sub(r"\\\1", without_html).replace("://", "&#58;//")


def _headline(data: ReportData, run_id: str | None) -> str:
    tiles = [
        f"- **{escaped(tile.label)}:** {escaped(tile.value)} ({escaped(tile.detail)})" for tile in story.tiles(data)
    ]
    notes = [escaped(sentence) for sentence in (story.this_run(data, run_id), *caveats(data)) if sentence]
    return "\n\n".join([f"**{escaped(story.headline(data))}**", "\n".join(tiles), *notes])


def _table(table: tables.Table) -> str:
    if not table.rows:
        return "None yet."
    titles = [escaped(column.title) for column in table.columns]
    rules = ["---:" if column.is_number else ":---" for column in table.columns]
    lines = [_row(titles), _row(rules), *(_row(_cells(row)) for row in table.rows)]
    note = f"\n\n{escaped(table.note)}" if table.note else ""
    return "\n".join(lines) + note


def _cells(row: tables.Row) -> list[str]:
    return [f"**{escaped(cell)}**" if row.is_this_run else escaped(cell) for cell in row.cells]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _failures(data: ReportData) -> str:
    listed, note = tables.failures(data)
    if not listed:
        return "Nothing: every trial that ended reached the target."
    parts = [_failure(failure) for failure in listed]
    return "\n\n".join([*parts, escaped(note)] if note else parts)


def _failure(failure: tables.Failure) -> str:
    heading = f"**{escaped(failure.title)}.** {escaped(failure.reason)}".rstrip()
    return f"{heading}\n\n{_fenced(failure.error)}" if failure.error else heading


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _fitting(document: str) -> str:
    if len(document) <= MAX_CHARACTERS:
        return document
    end = "\n\nThe rest is left out: it is longer than the KFP UI shows.\n"
    return document[: document.rindex("\n", 0, MAX_CHARACTERS - len(end))] + end
