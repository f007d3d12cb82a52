"""Faults that a test orders from the server."""

import re
from dataclasses import dataclass, field
from typing import Any

GRPC_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 409: 6, 429: 8, 500: 13, 503: 14, 504: 4}


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return the body that KFP's gateway gives an error."""
    return {"code": GRPC_CODES.get(status, 2), "message": message, "details": []}


@dataclass
class Fault:
    """What happens to the next requests that match.

    Attributes:
        method: HTTP method.
        path: Regular expression that the path must match as a whole.
        status: Status of the answer; 0 closes the connection without one.
        times: How many requests it happens to.
        text: Body as it stands, for what proxies answer; None gives KFP's own error body.
        hang: Answer only once the server stops, for time-outs.
        after: Do what was asked first, and only then fail: the outcome is lost on the way.
    """

    method: str
    path: str
    status: int = 503
    times: int = 1
    text: str | None = None
    hang: bool = False
    after: bool = False
    hits: int = field(default=0, init=False)

    def takes(self, method: str, path: str) -> bool:
        """Return whether it happens to this request, and count that it did."""
        if self.hits >= self.times or method != self.method or not re.fullmatch(self.path, path):
            return False
        self.hits += 1
        return True
