"""The HTTP side: routes requests to the books, in pages, after the faults that a test ordered."""

import base64
import json
import ssl
import threading
from email.parser import BytesParser
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fake_kfp.books import Books, Record, RefusedError
from fake_kfp.faults import Fault, error_body
from fake_kfp.openapi import ApiDescription, NotDescribedError

API = "/apis/v2beta1"
MAX_PAGE = 200
FILTER_KEYS = {
    "pipelines": {"pipeline_id", "display_name", "name", "created_at", "description", "namespace"},
    "pipeline_versions": {"pipeline_version_id", "display_name", "name", "created_at", "description"},
    "experiments": {"experiment_id", "display_name", "name", "created_at", "namespace"},
    "recurringRuns": {"recurring_run_id", "display_name", "name", "created_at", "updated_at", "description"},
    "runs": {"run_id", "display_name", "created_at", "state", "recurring_run_id", "experiment_id", "storage_state"},
}


class FakeKfp:
    """A KFP API server on a free port of the loopback interface; use it as a context manager.

    Attributes:
        url: Where it listens.
        books: What it keeps.
        requests: Method, path, query and body of every request so far.
        headers: The headers of each of them.
        errors: What the description of the API did not allow.
        token: The bearer token that it asks for, or "" for none.
    """

    def __init__(self, books: Books, description: ApiDescription | None, *, multi_user: bool = False) -> None:
        self.books = books
        self.description = description
        self.multi_user = multi_user
        self.token = ""
        self.default_page = 20
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.headers: list[dict[str, str]] = []
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def speak_tls(self, certificate: str, key: str) -> None:
        """Speak HTTPS from now on; before anybody listens."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")

    def __enter__(self) -> "FakeKfp":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def fail(self, fault: Fault) -> Fault:
        """Order a fault."""
        self._faults.append(fault)
        return fault

    def forget_faults(self) -> None:
        """Be sound from now on."""
        self._faults.clear()

    def sent(self, method: str, ending: str) -> list[Any]:
        """Return the bodies of the requests of a method whose path ends so."""
        return [body for verb, path, _, body in self.requests if verb == method and path.endswith(ending)]

    def fault_of(self, method: str, path: str) -> Fault | None:
        """Return the fault that happens to this request."""
        with self._lock:
            return next((fault for fault in self._faults if fault.takes(method, path)), None)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, file: bytes) -> tuple[int, Any]:
        """Answer a request, and note what the description of the API does not allow in it."""
        with self._lock:
            self.requests.append((method, path, query, body))
            route = self._checked_route(method, path, query, body)
            try:
                status, answer = 200, self._do(method, path.removeprefix(API), query, body, file)
            except RefusedError as refused:
                status, answer = refused.status, error_body(refused.status, str(refused))
            answer = json.loads(json.dumps(answer))
            if route is not None:
                self._note(lambda: self.description.check_response(route, status, answer))
            return status, answer

    def _checked_route(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        if self.description is None:
            return None
        route = self._note(lambda: self.description.route(method, path))
        if route is not None:
            self._note(lambda: self.description.check_query(route, query))
            self._note(lambda: self.description.check_body(route, body))
        return route

    def _note(self, check: Any) -> Any:
        try:
            return check()
        except NotDescribedError as error:
            self.errors.append(str(error))
            return None

    def _do(self, method: str, path: str, query: dict[str, str], body: Any, file: bytes) -> Record:
        books, parts = self.books, path.strip("/").split("/")
        match method, parts:
            case "GET", ["healthz"]:
                return {"multi_user": self.multi_user, "pipeline_store": "database"}
            case "POST", ["pipelines", "upload"]:
                text = (query.get("name", ""), query.get("description", ""))
                return books.upload_pipeline(*text, file, query.get("namespace", ""))
            case "POST", ["pipelines", "upload_version"]:
                text = (query.get("name", ""), query.get("description", ""))
                return books.upload_version(query.get("pipelineid", ""), *text, file)
            case "GET", ["pipelines"]:
                return self._page("pipelines", books.pipelines, query, namespace=query.get("namespace", ""))
            case "GET", ["pipelines", pipeline_id, "versions"]:
                return self._page("pipeline_versions", books.versions, query, pipeline_id=pipeline_id)
            case "GET", ["pipelines", _, "versions", version_id]:
                return books.one(books.versions, version_id)
            case "GET", ["experiments"]:
                return self._page("experiments", books.experiments, query)
            case "POST", ["experiments"]:
                return books.create_experiment(body)
            case "GET", ["experiments", experiment_id]:
                return books.one(books.experiments, experiment_id)
            case "GET", ["recurringruns"]:
                return self._page("recurringRuns", books.recurring_runs, query)
            case "POST", ["recurringruns"]:
                return books.create_recurring_run(body)
            case "POST", ["recurringruns", action]:
                recurring_run_id, _, verb = action.partition(":")
                return books.switch(recurring_run_id, {"enable": True, "disable": False}[verb])
            case "GET", ["recurringruns", recurring_run_id]:
                return books.one(books.recurring_runs, recurring_run_id)
            case "DELETE", ["recurringruns", recurring_run_id]:
                return books.delete_recurring_run(recurring_run_id)
            case "GET", ["runs"]:
                return self._page("runs", books.runs, query)
            case "POST", ["runs"]:
                return books.create_run(body)
            case "GET", ["runs", run_id]:
                return books.one(books.runs, run_id)
        raise RefusedError(501, f"this server has no {method} {path}")

    def _page(self, name: str, table: dict[str, Record], query: dict[str, str], **equal: str) -> Record:
        rows = [row for row in table.values() if all(row.get(k, "") == v for k, v in equal.items())]
        if query.get("experiment_id"):
            rows = [row for row in rows if row["experiment_id"] == query["experiment_id"]]
        rows = [row for row in rows if _matches(row, json.loads(query.get("filter") or "{}"), FILTER_KEYS[name])]
        if query.get("sort_by"):
            key, _, order = query["sort_by"].partition(" ")
            rows.sort(key=lambda row: row.get(key, ""), reverse=order == "desc")
        size = min(int(query.get("page_size") or 0) or self.default_page, MAX_PAGE)
        start = int(base64.b64decode(query.get("page_token", "")) or 0)
        answer: Record = {"total_size": len(rows)}
        if rows[start : start + size]:
            answer[name] = rows[start : start + size]
        if start + size < len(rows):
            answer["next_page_token"] = base64.b64encode(str(start + size).encode()).decode()
        return answer


def _handler(server: FakeKfp) -> type[BaseHTTPRequestHandler]:
    """Return what handles the requests to a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: apart, the second waits 40 ms for an acknowledgement

        def _serve(self) -> None:
            url = urlsplit(self.path)
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body, file = _parsed(self.headers.get("Content-Type", ""), raw)
            fault = server.fault_of(self.command, url.path)
            if fault is not None and fault.hang:
                server.stopping.wait()
                self.close_connection = True
                return
            if fault is None or fault.after:
                if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                    return self._send(401, error_body(401, "Unauthenticated"))
                query = dict(parse_qsl(url.query))
                status, answer = server.answer(self.command, url.path, query, body, file)
                if fault is None:
                    return self._send(status, answer)
            if fault.status == 0:
                self.close_connection = True
            elif fault.text is not None:
                self._send(fault.status, fault.text)
            else:
                self._send(fault.status, error_body(fault.status, "ordered by the test"))

        do_GET = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815  # http.server looks for these names

        def _send(self, status: int, answer: Any) -> None:
            text = isinstance(answer, str)
            content = (answer if text else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if text else "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return format_datetime(server.books.clock(), usegmt=True)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _parsed(content_type: str, raw: bytes) -> tuple[Any, bytes]:
    """Return a request's JSON body and its uploaded file."""
    if content_type.startswith("multipart/"):
        message = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + raw)
        (part,) = [p for p in message.walk() if p.get_param("name", header="content-disposition") == "uploadfile"]
        return None, part.get_payload(decode=True)
    return (json.loads(raw) if raw else None), b""


def _matches(row: Record, filters: Record, keys: set[str]) -> bool:
    for predicate in filters.get("predicates", []):
        operation, key = predicate["operation"], predicate["key"]
        value = predicate.get("stringValue", predicate.get("string_value"))
        if operation not in (1, "EQUALS"):
            raise RefusedError(400, f"Invalid input error: operation {operation!r} is not kept here")
        if key not in keys:
            raise RefusedError(400, f"Invalid input error: no filter by {key!r}")
        if row.get(key, "") != value:
            return False
    return True
