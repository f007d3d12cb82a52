"""One line of what the doctor found."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check came out."""

    GOOD = "ok"
    LACKING = "lacking"
    """Something works less well than it could; training runs on."""
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        subject: What was looked at.
        verdict: How it came out.
        found: What was found.
        advice: What to change; "" if nothing.
    """

    subject: str
    verdict: Verdict
    found: str
    advice: str = ""
