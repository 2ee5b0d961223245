"""Logins of registries for the controller's own identity at AWS, Azure and Google.

The identity comes from where the providers' own clients find it: variables of the process, files of a pod's
service account, and the services of containers and machines for their own credentials. It goes to hosts of
its provider alone (see `controller.api.addresses`), and no message repeats a credential.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from cachetools import LRUCache

from controller.runtime.clock import now, unix_time
from controller.runtime.http_client import HttpClient, RequestError, Route, read_all
from controller.runtime.plain_text import json_object
from controller.runtime.setbacks import Failed
from controller.sources.oci_registry import OwnLogins, RegistryLogin
from evaluator.host.times import read_time

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_HOSTS: Final = 1024
_USED: Final = 0.8
"""The share of a login's life after which a new one is asked for."""
_LEAST_AGE: Final = 60.0
"""Seconds during which a refused login is not replaced: a source without rights would ask at each look."""
_SECONDS: Final = 10.0
"""For one request: outside of a cloud nobody answers at the address of its machines' service."""
_ANSWER_BYTES: Final = 64 * 1024
_AZURE_USER: Final = "00000000-0000-0000-0000-000000000000"
"""The name under which Azure's registries take a refresh token for a password."""
_AZURE_SECONDS: Final = 3 * 3600.0
_AZURE_AUDIENCE: Final = "https://containerregistry.azure.net"
_MACHINE: Final = "http://169.254.169.254"
_CONTAINER: Final = "http://169.254.170.2"
_JSON: Final = "application/x-amz-json-1.1"
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_ECR_TARGET: Final = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
_ECR_HOST: Final = re.compile(r"[0-9]+\.dkr\.(ecr|ecr-fips)\.([a-z0-9-]+)\.(amazonaws\.com(?:\.cn)?)")
_XML_VALUE: Final = r"<{0}>([^<>]+)</{0}>"


class _Granted(NamedTuple):
    login: RegistryLogin
    seconds: float
    """Its life."""


class _Keys(NamedTuple):
    """Credentials of AWS."""

    access: str
    secret: str
    session: str


@dataclass(slots=True)
class _Kept:
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    login: RegistryLogin | None = None
    made: float = 0.0
    until: float = 0.0


class IdentityLogins(OwnLogins):
    """Keeps each registry's login for most of its life. Belongs to one event loop."""

    def __init__(self, provider: str) -> None:
        """`provider`: aws, azure or gcp."""
        self._provider = provider
        self._kept: LRUCache[str, _Kept] = LRUCache(_MOST_HOSTS)
        # The service of a machine is asked by no proxy.
        self._near = HttpClient(None)
        self._far = HttpClient(None, system_proxies=True)

    async def login(self, host: str, *, refused: bool) -> RegistryLogin:
        """Return the login; another than before if the registry `refused` it. Raises Failed."""
        kept = self._kept.setdefault(host, _Kept())
        async with kept.asking:
            time = asyncio.get_running_loop().time()
            outdated = refused and time >= kept.made + _LEAST_AGE
            if kept.login is None or time >= kept.until or outdated:
                granted = await self._ask(host)
                kept.login, kept.made = granted.login, time
                kept.until = time + granted.seconds * _USED
            return kept.login

    async def close(self) -> None:
        """Close the connections."""
        await self._near.close()
        await self._far.close()

    async def _ask(self, host: str) -> _Granted:
        asked = {"aws": self._aws, "azure": self._azure, "gcp": self._google}[self._provider]
        try:
            return await asked(host)
        except RequestError as error:
            raise self._failure(error.message) from error
        except OSError as error:
            raise self._failure(f"{error.filename}: {error.strerror}") from error
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise self._failure("an answer of the provider is not as it is published") from error

    def _failure(self, why: str) -> Failed:
        return Failed(
            "AuthenticationFailed",
            f"the controller's own identity gives no login for provider {self._provider}: {why}; give the "
            "controller an identity that may read the registry, or set spec.oci.secretRef",
        )

    async def _send(self, method: str, url: str, headers: Mapping[str, str], data: bytes = b"") -> bytes:
        client = self._far if url.startswith("https:") else self._near
        async with client.request(
            method, url, headers=headers, data=data, route=Route(seconds=_SECONDS)
        ) as answer:
            if answer.status != 200:
                raise self._failure(f"{urlsplit(url).hostname} answers {answer.status}")
            return await read_all(answer, _ANSWER_BYTES)

    async def _object(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes = b""
    ) -> dict[str, Any]:
        document = json_object(await self._send(method, url, headers, data))
        if document is None:
            raise ValueError
        return document

    async def _aws(self, host: str) -> _Granted:
        """Ask for ECR's login."""
        found = _ECR_HOST.fullmatch(host)
        if found is None:
            raise self._failure(f"{host} is no registry of it")
        service, region, domain = found.groups()
        keys = await self._aws_keys(region, domain)
        prefix = "api.ecr" if service == "ecr" else service
        url = os.environ.get("AWS_ENDPOINT_URL_ECR", f"https://{prefix}.{region}.{domain}").rstrip("/") + "/"
        document = await self._object("POST", url, signed(keys, url, region, b"{}"), b"{}")
        given = document["authorizationData"][0]
        username, _, password = base64.b64decode(given["authorizationToken"]).decode().partition(":")
        return _Granted(RegistryLogin(username, password), float(given["expiresAt"]) - unix_time())

    async def _aws_keys(self, region: str, domain: str) -> _Keys:
        """Return the keys, in the order in which AWS's own clients look for them."""
        known = os.environ
        if known.get("AWS_ACCESS_KEY_ID") and known.get("AWS_SECRET_ACCESS_KEY"):
            session = known.get("AWS_SESSION_TOKEN", "")
            return _Keys(known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"], session)
        if known.get("AWS_WEB_IDENTITY_TOKEN_FILE") and known.get("AWS_ROLE_ARN"):
            service = f"https://sts.{known.get('AWS_REGION') or region}.{domain}"
            query = {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": known["AWS_ROLE_ARN"],
                "RoleSessionName": known.get("AWS_ROLE_SESSION_NAME") or "flagstaff",
                "WebIdentityToken": await _file("AWS_WEB_IDENTITY_TOKEN_FILE"),
            }
            url = known.get("AWS_ENDPOINT_URL_STS", service).rstrip("/") + "/"
            text = (await self._send("POST", url, _FORM, urlencode(query).encode())).decode()
            names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
            values = [re.search(_XML_VALUE.format(name), text) for name in names]
            return _Keys(*(value[1] for value in values if value is not None))
        path = known.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        url = known.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "") if path is None else _CONTAINER + path
        if url:
            token = known.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
            if known.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
                token = await _file("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
            document = await self._object("GET", url, {"Authorization": token} if token else {})
        else:
            document = await self._aws_machine()
        return _Keys(document["AccessKeyId"], document["SecretAccessKey"], document["Token"])

    async def _aws_machine(self) -> dict[str, Any]:
        place = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _MACHINE).rstrip("/") + "/latest"
        life = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = (await self._send("PUT", f"{place}/api/token", life)).decode()
        shown = {"X-aws-ec2-metadata-token": token}
        roles = f"{place}/meta-data/iam/security-credentials/"
        role = (await self._send("GET", roles, shown)).decode().split()[0]
        return await self._object("GET", roles + role, shown)

    async def _azure(self, host: str) -> _Granted:
        """Exchange a token of Entra for the registry's."""
        entra = await self._azure_token()
        form = {"grant_type": "access_token", "service": host, "access_token": entra}
        url = f"https://{host}/oauth2/exchange"
        document = await self._object("POST", url, _FORM, urlencode(form).encode())
        return _Granted(RegistryLogin(_AZURE_USER, _word(document["refresh_token"])), _AZURE_SECONDS)

    async def _azure_token(self) -> str:
        known = os.environ
        if known.get("AZURE_FEDERATED_TOKEN_FILE"):
            form = {
                "grant_type": "client_credentials",
                "client_id": known["AZURE_CLIENT_ID"],
                "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                "client_assertion": await _file("AZURE_FEDERATED_TOKEN_FILE"),
                "scope": f"{_AZURE_AUDIENCE}/.default",
            }
            place = known.get("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com").rstrip("/")
            url = f"{place}/{known['AZURE_TENANT_ID']}/oauth2/v2.0/token"
            document = await self._object("POST", url, _FORM, urlencode(form).encode())
        else:
            query = {"api-version": "2018-02-01", "resource": _AZURE_AUDIENCE}
            if known.get("AZURE_CLIENT_ID"):
                query["client_id"] = known["AZURE_CLIENT_ID"]
            place = known.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", _MACHINE).rstrip("/")
            url = f"{place}/metadata/identity/oauth2/token?{urlencode(query)}"
            document = await self._object("GET", url, {"Metadata": "true"})
        return _word(document["access_token"])

    async def _google(self, host: str) -> _Granted:
        """Ask for an access token; every registry of Google takes it."""
        del host
        if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            token, seconds = await self._google_federated()
        else:
            place = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
            url = f"http://{place}/computeMetadata/v1/instance/service-accounts/default/token"
            document = await self._object("GET", url, {"Metadata-Flavor": "Google"})
            token, seconds = document["access_token"], float(document["expires_in"])
        return _Granted(RegistryLogin("oauth2accesstoken", _word(token)), seconds)

    async def _google_federated(self) -> tuple[str, float]:
        """Exchange the token of a pod, as the configuration of a workload identity federation says."""
        given = json.loads(await _file("GOOGLE_APPLICATION_CREDENTIALS"))
        if given.get("type") != "external_account" or "file" not in given["credential_source"]:
            raise self._failure(
                "GOOGLE_APPLICATION_CREDENTIALS must be an external_account with a credential_source.file"
            )
        source = given["credential_source"]
        token = await asyncio.to_thread(Path(source["file"]).read_text, encoding="utf-8")
        if (layout := source.get("format", {})).get("type") == "json":
            token = json.loads(token)[layout["subject_token_field_name"]]
        scope = "https://www.googleapis.com/auth/cloud-platform"
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "audience": given["audience"],
            "scope": scope,
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "subject_token_type": given["subject_token_type"],
            "subject_token": token.strip(),
        }
        document = await self._object("POST", given["token_url"], _FORM, urlencode(form).encode())
        if not given.get("service_account_impersonation_url"):
            return document["access_token"], float(document["expires_in"])
        headers = {"Authorization": f"Bearer {_word(document['access_token'])}"}
        body = json.dumps({"scope": [scope]}).encode()
        document = await self._object(
            "POST",
            given["service_account_impersonation_url"],
            {**headers, "Content-Type": "application/json"},
            body,
        )
        life = read_time(document["expireTime"]) - now()
        return document["accessToken"], life.total_seconds()


def signed(keys: _Keys, url: str, region: str, body: bytes) -> dict[str, str]:
    """Return the headers of a POST to ECR: Signature Version 4 of AWS."""
    moment = f"{now():%Y%m%dT%H%M%SZ}"
    headers = {
        "content-type": _JSON,
        "host": urlsplit(url).netloc,
        "x-amz-date": moment,
        **({"x-amz-security-token": keys.session} if keys.session else {}),
        "x-amz-target": _ECR_TARGET,
    }
    names = ";".join(headers)
    lines = [f"{name}:{value}" for name, value in headers.items()]
    request = "\n".join(["POST", "/", "", *lines, "", names, hashlib.sha256(body).hexdigest()])
    place = (moment[:8], region, "ecr", "aws4_request")
    text = "\n".join(
        ["AWS4-HMAC-SHA256", moment, "/".join(place), hashlib.sha256(request.encode()).hexdigest()]
    )
    key = f"AWS4{keys.secret}".encode()
    for part in (*place, text):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"{keys.access}/{'/'.join(place)}"
    signature = f"Credential={credential}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {signature}"}


async def _file(variable: str) -> str:
    """Return the content of the file that a variable names: it changes while the process runs."""
    return (await asyncio.to_thread(Path(os.environ[variable]).read_text, encoding="utf-8")).strip()


def _word(value: Any) -> str:
    """Return a credential. Raises ValueError for what is none."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError
    return value
