"""The report as one self-contained HTML page: no script, nothing fetched, fit for a sandboxed iframe."""

from functools import cache
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from zeus_kfp.components.close_recurrence import report_story as story
from zeus_kfp.components.close_recurrence import report_tables as tables
from zeus_kfp.components.close_recurrence.plots_canvas import Picture
from zeus_kfp.components.close_recurrence.plots_cost import cost_picture
from zeus_kfp.components.close_recurrence.plots_posterior import posterior_picture
from zeus_kfp.components.close_recurrence.report_caveats import caveats
from zeus_kfp.components.close_recurrence.report_data import ReportData
from zeus_kfp.components.close_recurrence.report_format import count, line
from zeus_kfp.components.close_recurrence.report_knobs import knobs


def render_html(data: ReportData, *, run_id: str | None = None) -> str:
    """Return the report of a job as an HTML document.

    Args:
        data: The job's history.
        run_id: The KFP run at hand, whose rows are highlighted; None for none.
    """
    failures, failures_note = tables.failures(data)
    return _template().render(
        job=line(data.job.spec.job_id, at_most=255),
        summary=_summary(data),
        headline=story.headline(data),
        this_run=story.this_run(data, run_id),
        tiles=story.tiles(data),
        caveats=caveats(data),
        cost=_trusted(cost_picture(data)),
        posterior=_trusted(posterior_picture(data)),
        recurrences=tables.recurrence_table(data, run_id),
        arms=tables.arm_table(data),
        trials=tables.trial_table(data, run_id),
        failures=failures,
        failures_note=failures_note,
        knobs=knobs(data),
    )


def _summary(data: ReportData) -> str:
    spec = data.job.spec
    goal = "at least" if spec.higher_is_better else "at most"
    user = f" · {line(spec.user, at_most=80)}" if spec.user else ""
    return (
        f"{data.job.phase} · target metric {goal} {spec.target_metric:g} · default batch size "
        f"{count(spec.default_batch_size)} · eta {spec.eta_knob:g} · policy {line(spec.policy, at_most=64)}{user}"
    )


def _trusted(picture: Picture | None) -> tuple[Markup, str] | None:
    # The drawing escapes what it writes; everything else in the page is escaped by the template.
    return None if picture is None else (Markup(picture.svg), picture.caption)


@cache
def _template() -> Template:
    source = resources.files(__package__ or "").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(source)
