"""A kfp.Client made from the environment.

Every way of logging in that kfp.Client has passes through as its own argument. What a command line or a pod needs is
read from the environment, so that no secret stands in a process list:

    KF_PIPELINES_ENDPOINT     address of the API (kfp's own variable, as the KF_PIPELINES_IAP_… ones)
    ZEUS_KFP_NAMESPACE        namespace, in a multi-user installation
    ZEUS_KFP_TOKEN            bearer token
    ZEUS_KFP_TOKEN_FILE       file with a token that is renewed, such as a projected service-account token
    ZEUS_KFP_COOKIES          cookies of a login, as the browser sends them
    ZEUS_KFP_CA_CERT          file with the certificate authority of the address
    ZEUS_KFP_PROXY            HTTP proxy
    ZEUS_KFP_KUBE_CONTEXT     context of the kubeconfig, where there is no address
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kfp
from kfp.client import ServiceAccountTokenVolumeCredentials

from zeus_kfp.pipelines.client.faults import limit_requests, told_clearly
from zeus_kfp.zeus_core.errors import InvalidValueError

_ARGUMENTS = {
    "existing_token": "ZEUS_KFP_TOKEN",
    "cookies": "ZEUS_KFP_COOKIES",
    "ssl_ca_cert": "ZEUS_KFP_CA_CERT",
    "proxy": "ZEUS_KFP_PROXY",
    "kube_context": "ZEUS_KFP_KUBE_CONTEXT",
}


class _Client(kfp.Client):  # type: ignore[misc]  # kfp tells no types
    """kfp.Client whose first question to the API is limited in time and asked once, not five times in 25 s."""

    def __init__(self, timeout_s: int, **arguments: Any) -> None:
        self._timeout_s = timeout_s
        super().__init__(**arguments)

    def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
        limit_requests(self, self._timeout_s)
        return self._healthz_api.healthz_service_get_healthz()


def connect(timeout_s: int = 60, environment: Mapping[str, str] = os.environ, **arguments: Any) -> kfp.Client:
    """Return a kfp.Client.

    Args:
        timeout_s: Time that a request may take, in s.
        environment: Where arguments that are not given are looked up.
        **arguments: Whatever kfp.Client takes: host, existing_token, cookies, credentials, ….

    Raises:
        InvalidValueError: If a file that the environment names is missing.
        ClusterError: If the API does not answer, or doesn't let us in.
    """
    found: dict[str, Any] = {name: environment.get(variable, "").strip() for name, variable in _ARGUMENTS.items()}
    found = {name: value for name, value in found.items() if value}
    token_file = environment.get("ZEUS_KFP_TOKEN_FILE")
    if token_file and not {"credentials", "existing_token"} & set(arguments):
        found["credentials"] = ServiceAccountTokenVolumeCredentials(path=_existing("ZEUS_KFP_TOKEN_FILE", token_file))
    if "ssl_ca_cert" in found:
        _existing(_ARGUMENTS["ssl_ca_cert"], found["ssl_ca_cert"])
    host = arguments.get("host") or environment.get("KF_PIPELINES_ENDPOINT", "")
    with told_clearly("connect", host), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="kfp")
        given = found | {name: _trimmed(value) for name, value in arguments.items() if value is not None}
        if not host:
            # kfp would look for the API itself in this namespace; it is given with each request anyway.
            given.pop("namespace", None)
        return _Client(timeout_s, **given)


def _trimmed(value: Any) -> Any:
    """Return text without the line break that a token read from a file brings, and that no HTTP header may hold."""
    return value.strip() if isinstance(value, str) else value


def _existing(variable: str, path: str) -> str:
    if not Path(path).is_file():
        raise InvalidValueError(f"{variable} names {path}, where there is no file")
    return path
