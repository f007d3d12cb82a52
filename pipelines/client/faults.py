"""What goes wrong between here and the API: one clear error each, and reads tried again."""

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ParamSpec, TypeVar

import kfp
import kfp_server_api
import tenacity
import urllib3

from zeus_kfp.zeus_core.errors import (
    ClusterAccessError,
    ClusterError,
    ClusterRefusedError,
    ClusterUnavailableError,
)

P = ParamSpec("P")
T = TypeVar("T")

_MOST_TRIES = 4
_NO_JSON = "an answer that is not JSON"
_ADVICE = {
    401: "log in again: the token or cookie is missing or has expired (see docs/cluster.md, Log in)",
    403: "ask for the right to do this in that namespace, or name another with --namespace",
    404: "it may have been deleted meanwhile: list what there is",
    409: "somebody made the same at the same time: do it again",
}


@contextmanager
def told_clearly(what: str, host: str) -> Iterator[None]:
    """Turn every fault of a call into one of the library's errors, which says what failed, where, and what to do.

    Raises:
        ClusterUnavailableError: If there was no answer in time, or one of 429 and 5xx.
        ClusterAccessError: If it was 401 or 403, or a login page, or a file with a token is not there.
        ClusterRefusedError: If it was any other refusal.
    """
    try:
        yield
    except kfp_server_api.ApiException as error:
        raise _of_answer(what, host, error) from error
    except (urllib3.exceptions.HTTPError, ConnectionError, TimeoutError) as error:
        raise ClusterUnavailableError(
            f"can't {what}: {_at(host)} does not answer ({_short(error)}); check the address and the network, and "
            "do it again: what was already made is found again; of a run look first whether it is there"
        ) from error
    except OSError as error:
        raise ClusterAccessError(f"can't {what}: a file of kfp's own can't be read: {error}") from error


def with_retries(call: Callable[[], T], *, sleep: Callable[[float], None]) -> T:
    """Return what a call gives that may be repeated, trying again while the API is unavailable."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(ClusterUnavailableError),
        stop=tenacity.stop_after_attempt(_MOST_TRIES),
        wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=8, jitter=0.5),
        sleep=sleep,
        reraise=True,
    )
    return retrying(call)


def limit_requests(client: kfp.Client, timeout_s: int) -> None:
    """Let no request of a kfp.Client wait for ever, and let no login page pass for an answer.

    The generated client has no time limit unless each call gives one, tries again by itself, and takes a page that is
    not JSON for an empty answer: a list behind an expired login would look like no schedules at all.
    """
    rest = client._run_api.api_client.rest_client
    if not hasattr(rest, "time_limit_s"):
        rest.request = functools.partial(_limited, rest, rest.request)
        rest.pool_manager.connection_pool_kw["retries"] = urllib3.Retry(0, redirect=3)
    rest.time_limit_s = timeout_s


def told_time(client: kfp.Client) -> datetime | None:
    """Return the time that the last answer to a kfp.Client bore, None where it bore none."""
    told: datetime | None = getattr(client._run_api.api_client.rest_client, "told_time", None)
    return told


def _limited(rest: Any, request: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    connect_s = min(rest.time_limit_s, 10)
    kwargs["_request_timeout"] = kwargs.get("_request_timeout") or (connect_s, rest.time_limit_s)
    try:
        answer = request(*args, **kwargs)
        rest.told_time = _date_of(answer)
        if answer.data.lstrip()[:1] not in (b"", b"{", b"["):
            raise kfp_server_api.ApiException(status=answer.status, reason=_NO_JSON)
    except kfp_server_api.ApiException as error:
        error.body = error.body or b""  # the generated client decodes it, be it there or not
        raise
    return answer


def _date_of(answer: Any) -> datetime | None:
    try:
        return parsedate_to_datetime(answer.getheader("Date")).astimezone(UTC)
    except (TypeError, ValueError):
        return None


def _of_answer(what: str, host: str, error: kfp_server_api.ApiException) -> ClusterError:
    status = int(error.status or 0)
    said = f"can't {what}: {_at(host)} answered {status} {_message(error)}".rstrip()
    if error.reason == _NO_JSON:
        return ClusterAccessError(
            f"{said}, perhaps a login page; {_ADVICE[401]}, and check that the address is that of the KFP API"
        )
    if status in (401, 403):
        return ClusterAccessError(f"{said}; {_ADVICE[status]}")
    if status == 429 or status >= 500 or status == 0:
        return ClusterUnavailableError(
            f"{said}; do it again later: what was already made is found again; of a run look first whether it is there"
        )
    return ClusterRefusedError(f"{said}; {_ADVICE.get(status, 'correct the request')}")


def _message(error: kfp_server_api.ApiException) -> str:
    try:
        body = json.loads(error.body)
        return str(body.get("message") or body.get("error_message") or error.reason)[:500]
    except (TypeError, ValueError, AttributeError):
        return str(error.reason)


def _at(host: str) -> str:
    scheme, mark, rest = host.rpartition("://")
    shown = f"{scheme}{mark}{rest.rpartition('@')[2]}"  # an address may hold a password
    return f"the KFP API at {shown or '(no address: set KF_PIPELINES_ENDPOINT, or give the host)'}"


def _short(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return f"{type(reason).__name__}: {str(reason)[:200]}"
