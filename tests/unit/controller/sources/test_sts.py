"""`spec.bucket.sts`: temporary keys for a web identity, of a stand-in for AWS's service."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from pydantic import ValidationError

from controller.api.source_spec import BucketSpec
from controller.runtime.setbacks import Failed
from controller.sources.backend import TreeLimits
from controller.sources.bucket_client import list_objects
from controller.sources.bucket_factory import bucket_of
from controller.sources.bucket_place import Bucket, Scheme
from tests.s3 import BUCKET, S3
from tests.sync_sources import S3_KEY, S3_SECRET

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROLE = "arn:aws:iam::123456789012:role/flags"
ANSWER = """<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>session</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""


class Sts(ThreadingHTTPServer):
    """Gives the store's keys to clients with a token."""

    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext, shown: str) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.shown = shown
        self.asked: list[dict[str, list[str]]] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"


class _Exchange(BaseHTTPRequestHandler):
    server: Sts

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        asked = parse_qs(f"{urlsplit(self.path).query}&{body}")
        self.server.asked.append(asked)
        known = asked.get("WebIdentityToken") == [self.server.shown]
        content = ANSWER.format(key=S3_KEY, secret=S3_SECRET).encode() if known else b""
        self.send_response(200 if known else 403)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def sts(authority: trustme.CA) -> Iterator[Sts]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with Sts(tls, "of-the-pod") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def spec(endpoint: str, **more: object) -> BucketSpec:
    sts = {"provider": "aws", "endpoint": endpoint}
    return BucketSpec.model_validate({"bucketName": BUCKET, "provider": "aws", "sts": sts, **more})


@pytest.fixture
def asking(store: S3, sts: Sts, authority: trustme.CA, tmp_path: Path) -> Bucket:
    """A bucket as `bucket_of` makes it in a pod with IRSA, but for where store and service are."""
    made = bucket_of(spec("https://sts.eu-west-1.amazonaws.com/"), None, {})
    assert made.config["aws_endpoint_url_sts"] == "https://sts.eu-west-1.amazonaws.com"
    (tmp_path / "token").write_text("of-the-pod")
    identity = {"role_arn": ROLE, "web_identity_token_file": str(tmp_path / "token")}
    config = {**made.config, **identity, "aws_endpoint_url_sts": sts.url}
    client = {"root_certificate": authority.cert_pem.bytes().decode()}
    return Bucket(Scheme.S3, BUCKET, "", store.url, config, client)


async def test_keys_for_the_web_identity_are_asked_of_the_service_that_is_named(
    asking: Bucket, store: S3, sts: Sts
) -> None:
    store.put(a__json="1")
    assert [each.key for each in await list_objects(asking, TreeLimits())] == ["a.json"]
    (asked,) = sts.asked
    assert (asked["Action"], asked["RoleArn"]) == (["AssumeRoleWithWebIdentity"], [ROLE])


async def test_an_identity_that_the_service_refuses_reads_nothing(
    asking: Bucket, store: S3, sts: Sts
) -> None:
    sts.shown = "of-another-pod"
    with pytest.raises(Failed):
        await list_objects(asking, TreeLimits())
    assert sts.asked
    assert not store.asked


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://sts.amazonaws.com", "https://sts.amazonaws.com.evil.com", "https://sts.evil.com/",
        "https://sts.s3.amazonaws.com", "https://evil.s3.eu-west-1.amazonaws.com", "https://sts.amazonaws.com:1@evil.com",
    ],
)  # fmt: skip
def test_the_identity_is_shown_to_no_other_host(endpoint: str) -> None:
    with pytest.raises(ValidationError, match=r"sts\.endpoint"):
        spec(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://sts.amazonaws.com", "https://sts-fips.us-east-1.amazonaws.com", "https://sts.cn-north-1.amazonaws.com.cn",
        "https://sts.us-gov-west-1.amazonaws.com", "https://vpce-0a1b-2c3d.sts.eu-west-1.vpce.amazonaws.com",
    ],
)  # fmt: skip
def test_the_services_of_aws_are_known(endpoint: str) -> None:
    assert spec(endpoint).sts is not None


@pytest.mark.parametrize("more", [{"provider": "generic"}, {"secretRef": {"name": "keys"}}])
def test_there_is_an_identity_for_aws_alone(more: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="sts works only with provider aws and without secretRef"):
        spec("https://sts.amazonaws.com", **more)
