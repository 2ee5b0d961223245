"""Stand-ins for the services of AWS, Azure and Google that give logins of registries, after their published
APIs; all their hosts are one server, beside a registry that takes the logins.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from yarl import URL

from controller.runtime.http_client import HttpClient
from tests.registry.front import Front, before

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

    import pytest

HOSTS: Final = {
    "aws": "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
    "azure": "shop.azurecr.io",
    "gcp": "europe-docker.pkg.dev",
}
USERS: Final = {"aws": "AWS", "azure": "00000000-0000-0000-0000-000000000000", "gcp": "oauth2accesstoken"}
POD: Final = "token-of-the-pod"
ACCESS, KEY, SESSION = "AKIAFLAGS", "key-of-the-role", "session-of-the-role"
ENTRA: Final = "token-of-entra"
AUDIENCE: Final = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k"


@dataclass
class Asked:
    """A request, at the host that the client meant."""

    method: str
    host: str
    path: str
    headers: Message
    body: str

    @property
    def form(self) -> dict[str, str]:
        """The form in the body, or the query."""
        text = self.body or urlsplit(self.path).query
        return {name: values[0] for name, values in parse_qs(text).items()}


@dataclass
class Clouds:
    """What they give, and what they were asked."""

    registry: Front
    login: str
    """The password that they give for a registry."""
    life: float = 12 * 3600
    status: int = 200
    """What all of them answer."""
    asked: list[Asked] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """The hosts that were asked, in order."""
        return [each.host for each in self.asked]

    def answer(self, asked: Asked) -> Any:  # noqa: C901, PLR0911 - a row for each service
        """The content of an answer; None: the request is refused."""
        path = urlsplit(asked.path).path
        match asked.host, path:
            case "api.ecr.eu-west-1.amazonaws.com", "/":
                token = base64.b64encode(f"AWS:{self.login}".encode()).decode()
                given = {"authorizationToken": token, "expiresAt": time.time() + self.life}  # noqa: TID251
                return {"authorizationData": [given]} if is_signed(asked) else None
            case "sts.eu-west-1.amazonaws.com", "/":
                keys = {"AccessKeyId": ACCESS, "SecretAccessKey": KEY, "SessionToken": SESSION}
                text = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items())
                return f"<Credentials>{text}</Credentials>" if asked.form["WebIdentityToken"] == POD else None
            case "169.254.170.2", "/v2/credentials":
                return {"AccessKeyId": ACCESS, "SecretAccessKey": KEY, "Token": SESSION}
            case "169.254.169.254", "/latest/api/token":
                return "token-of-the-machine" if asked.method == "PUT" else None
            case "169.254.169.254", "/latest/meta-data/iam/security-credentials/":
                return "flags" if asked.headers["x-aws-ec2-metadata-token"] else None
            case "169.254.169.254", "/latest/meta-data/iam/security-credentials/flags":
                return {"AccessKeyId": ACCESS, "SecretAccessKey": KEY, "Token": SESSION}
            case "169.254.169.254", "/metadata/identity/oauth2/token":
                return {"access_token": ENTRA} if asked.headers["Metadata"] == "true" else None
            case "login.microsoftonline.com", "/tenant/oauth2/v2.0/token":
                return {"access_token": ENTRA} if asked.form["client_assertion"] == POD else None
            case "shop.azurecr.io", "/oauth2/exchange":
                return {"refresh_token": self.login} if asked.form["access_token"] == ENTRA else None
            case "metadata.google.internal", "/computeMetadata/v1/instance/service-accounts/default/token":
                known = asked.headers["Metadata-Flavor"] == "Google"
                return {"access_token": self.login, "expires_in": self.life} if known else None
            case "sts.googleapis.com", "/v1/token":
                known = asked.form["subject_token"] == POD and asked.form["audience"] == AUDIENCE
                return {"access_token": "federated", "expires_in": 3600} if known else None
            case "iamcredentials.googleapis.com", _:
                known = asked.headers["Authorization"] == "Bearer federated"
                return {"accessToken": self.login, "expireTime": "2099-01-01T00:00:00Z"} if known else None
        return None


def is_signed(asked: Asked) -> bool:
    """Whether a request has AWS's signature, by the rules for a canonical request."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8}/eu-west-1/ecr/aws4_request), "
        r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})",
        asked.headers["Authorization"],
    )
    assert found is not None
    access, place, names, signature = found.groups()
    values = {name.lower(): value for name, value in asked.headers.items()} | {"host": asked.host}
    lines = [f"{name}:{values[name].strip()}" for name in sorted(names.split(";"))]
    body = hashlib.sha256(asked.body.encode()).hexdigest()
    canonical = "\n".join([asked.method, "/", "", *lines, "", names, body])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{values['x-amz-date']}\n{place}\n{digest}"
    key = b"AWS4" + KEY.encode()
    for part in place.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    wanted = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    required = {"host", "x-amz-date", "x-amz-target", "content-type", "x-amz-security-token"}
    return (access, signature) == (ACCESS, wanted) and required <= {*names.split(";")}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    clouds: Clouds


class _Exchange(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing is printed."""

    def _serve(self) -> None:
        clouds = self.server.clouds
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        asked = Asked(self.command, self.headers["X-Asked"], self.path, self.headers, body)
        clouds.asked.append(asked)
        given = clouds.answer(asked)
        content = (given if isinstance(given, str) else json.dumps(given)).encode()
        self.send_response(403 if given is None else clouds.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815 - http.server's names


@contextlib.contextmanager
def stand_ins(registry: int, login: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    """Clouds whose registries are the one at a port: requests to any host go to them."""
    server = _Server(("127.0.0.1", 0), _Exchange)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    with before(registry) as front:
        clouds = server.clouds = Clouds(front, login)
        send = HttpClient.request

        def rerouted(self: HttpClient, method: str, url: str | URL, **given: Any) -> Any:
            target = URL(url)
            own = target.host in HOSTS.values() and target.path != "/oauth2/exchange"
            place = front.host if own else f"127.0.0.1:{server.server_port}"
            assert own is False or target.scheme == "https"
            host, _, port = place.partition(":")
            headers = {**given.pop("headers"), "X-Asked": str(target.host)}
            moved = target.with_scheme("http").with_host(host).with_port(int(port))
            return send(self, method, moved, headers=headers, **given)

        monkeypatch.setattr(HttpClient, "request", rerouted)
        yield clouds
    server.shutdown()
    server.server_close()
