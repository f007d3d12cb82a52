"""Every way of logging in that kfp.Client has passes through untouched."""

from datetime import UTC, datetime, timedelta

import kfp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from fake_kfp import Books, FakeKfp, Fault
from kfp.client import ServiceAccountTokenVolumeCredentials

from zeus_kfp.pipelines.client import RecurringTrainingClient
from zeus_kfp.pipelines.client.connection import connect
from zeus_kfp.zeus_core.errors import ClusterAccessError, ClusterUnavailableError, InvalidValueError


@pytest.fixture
def token_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("from-a-file")
    return file


def sent(server):
    """Return what the last request proved itself with."""
    return {name: value for name, value in server.headers[-1].items() if name in ("authorization", "cookie", "x-goog")}


@pytest.mark.parametrize(
    ("arguments", "environment", "header"),
    [
        ({}, {}, {}),
        ({"existing_token": "mine"}, {}, {"authorization": "Bearer mine"}),
        ({}, {"ZEUS_KFP_TOKEN": "mine\n"}, {"authorization": "Bearer mine"}),
        ({"existing_token": "mine"}, {"ZEUS_KFP_TOKEN": "other"}, {"authorization": "Bearer mine"}),
        ({"existing_token": "mine"}, {"ZEUS_KFP_TOKEN_FILE": "TOKEN"}, {"authorization": "Bearer mine"}),
        ({}, {"ZEUS_KFP_TOKEN_FILE": "TOKEN"}, {"authorization": "Bearer from-a-file"}),
        ({"cookies": "authservice_session=abc"}, {}, {"cookie": "authservice_session=abc"}),
        ({}, {"ZEUS_KFP_COOKIES": "authservice_session=abc"}, {"cookie": "authservice_session=abc"}),
        (
            {"existing_token": "mine", "cookies": "a=b; c=d"},
            {},
            {"authorization": "Bearer mine", "cookie": "a=b; c=d"},
        ),
    ],
)
def test_tokens_and_cookies_are_sent_as_they_are(server, monkeypatch, token_file, arguments, environment, header):
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server.url)
    for name, value in environment.items():
        monkeypatch.setenv(name, str(token_file) if value == "TOKEN" else value)
    assert RecurringTrainingClient(**arguments).list_schedules() == []
    assert sent(server) == header


def test_a_projected_token_is_read_again_for_each_request(server, monkeypatch, token_file):
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(token_file))  # where kfp looks in a pod
    client = RecurringTrainingClient(host=server.url, credentials=ServiceAccountTokenVolumeCredentials())
    client.list_schedules()
    assert sent(server) == {"authorization": "Bearer from-a-file"}
    token_file.write_text("renewed")
    client.list_schedules()
    assert sent(server) == {"authorization": "Bearer renewed"}


def test_a_projected_token_that_is_gone_is_told(server, token_file):
    client = RecurringTrainingClient(
        host=server.url, credentials=ServiceAccountTokenVolumeCredentials(path=str(token_file))
    )
    token_file.unlink()
    with pytest.raises(ClusterAccessError, match="a file of kfp's own can't be read"):
        client.list_schedules()


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_client_id_and_secret_get_their_token_from_kfp(server, monkeypatch, by_environment):
    # What asks Google for the token can't be reached from a test; what it is asked with can.
    ids = {"client_id": "id.apps", "other_client_id": "desktop", "other_client_secret": "secret"}
    asked = []
    monkeypatch.setattr(kfp.client.auth, "get_auth_token", lambda *words: asked.append(words) or ("iap-token", False))
    if by_environment:
        monkeypatch.setenv("KF_PIPELINES_IAP_OAUTH2_CLIENT_ID", ids["client_id"])
        monkeypatch.setenv("KF_PIPELINES_APP_OAUTH2_CLIENT_ID", ids["other_client_id"])
        monkeypatch.setenv("KF_PIPELINES_APP_OAUTH2_CLIENT_SECRET", ids["other_client_secret"])
        ids = {}
    RecurringTrainingClient(host=server.url, **ids).list_schedules()
    assert asked == [("id.apps", "desktop", "secret")]
    assert sent(server) == {"authorization": "Bearer iap-token"}


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_proxy_is_asked_for_the_address(server, monkeypatch, by_environment):
    arguments = {"host": "http://kfp.example.com"}
    if by_environment:
        monkeypatch.setenv("ZEUS_KFP_PROXY", server.url)
    else:
        arguments["proxy"] = server.url
    assert RecurringTrainingClient(**arguments).list_schedules() == []
    assert server.headers[-1]["host"] == "kfp.example.com"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of localhost that no system knows, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(certificate), str(private)


@pytest.fixture
def tls_server(description, clock, certificate):
    server = FakeKfp(Books(clock), description)
    server.speak_tls(*certificate)
    with server:
        yield server


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_certificate_authority_of_ones_own_is_believed(tls_server, certificate, monkeypatch, by_environment):
    arguments = {"host": tls_server.url}
    if by_environment:
        monkeypatch.setenv("ZEUS_KFP_CA_CERT", certificate[0])
    else:
        arguments["ssl_ca_cert"] = certificate[0]
    assert RecurringTrainingClient(**arguments).list_schedules() == []


def test_a_certificate_that_nobody_vouches_for_is_not_believed_unless_told(tls_server, clock):
    with pytest.raises(ClusterUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        RecurringTrainingClient(host=tls_server.url, sleep=clock.sleep)
    assert RecurringTrainingClient(host=tls_server.url, verify_ssl=False).list_schedules() == []


def test_the_context_that_kfp_keeps_is_used(server, tmp_path, monkeypatch):
    kfp.Client(host=server.url).set_user_namespace("team-b")
    RecurringTrainingClient(host=server.url).list_schedules()
    assert server.requests[-1][2]["namespace"] == "team-b"
    RecurringTrainingClient(host=server.url, namespace="team-c").list_schedules()
    assert server.requests[-1][2]["namespace"] == "team-c"


@pytest.mark.parametrize(("status", "advice"), [(401, "log in again"), (403, "ask for the right")])
@pytest.mark.parametrize("call", ["list_schedules", "schedule", "pause", "resume", "delete", "run_now", "submit"])
def test_whoever_may_not_is_told_so_once_by_every_call(client, server, pipeline, knobs, status, advice, call):
    fault = server.fail(Fault("GET", ".*", status, times=9))
    with pytest.raises(ClusterAccessError, match=f"answered {status} .*{advice}"):
        getattr(client, call)(*{"list_schedules": (), "submit": (pipeline, knobs)}.get(call, ("nightly",)))
    assert fault.hits == 1


@pytest.mark.parametrize("variable", ["ZEUS_KFP_TOKEN_FILE", "ZEUS_KFP_CA_CERT"])
def test_a_file_that_is_not_there_is_told_with_its_variable(variable, tmp_path):
    with pytest.raises(InvalidValueError, match=f"{variable} names {tmp_path}, where there is no file"):
        connect(environment={variable: str(tmp_path)}, host="http://127.0.0.1:1")
