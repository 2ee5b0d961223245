"""A FlagSource's `spec.bucket` and Secrets as a source that can be read."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from controller.api.addresses import KNOWN
from controller.api.fields import require
from controller.api.source_spec import BucketSpec
from controller.runtime.helpers import Helpers
from controller.runtime.limits import Places
from controller.runtime.secret_texts import SecretTexts, proxy_url
from controller.runtime.setbacks import Setback, Stalled, stall_on_invalid_text
from controller.sources.backend import BackendFactory, FetchRequest
from controller.sources.bucket_backend import CLIENT, TASK, BucketBackend, in_helper
from controller.sources.bucket_listing import ManifestTrust
from controller.sources.bucket_place import Bucket, Scheme, azure_account
from controller.sources.deadline import Deadline, LimitedTasks
from controller.sources.secrets import NO_IDENTITY, Secrets, in_cluster
from controller.sources.signing_keys import epoch
from evaluator.host.system_proxies import system_proxy

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from controller.runtime.hosts import Hosts
    from controller.sources.secrets import ReadSecret


_HEAD: Final = 64 * 1024
"""Most bytes of a request's head."""
_CHUNK: Final = 64 * 1024
_REFUSED: Final = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_OWN: Final = {"proxy-authorization", "proxy-connection", "connection"}
"""Headers that are for the proxy, and are not passed on."""


class JudgingProxy:
    """Listens once `url` was called. Belongs to one event loop."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        # Other programs that reach our loopback are refused.
        self._word = secrets.token_urlsafe(32)
        login = b64encode(f"flagstaff:{self._word}".encode()).decode()
        self._login = f"basic {login}".encode()
        self._starting = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def url(self) -> str:
        """Start, and return the proxy's URL with the login. Raises OSError."""
        async with self._starting:
            if self._server is None:
                self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD)
        return f"http://flagstaff:{self._word}@127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Close the listener and its connections."""
        if self._server is not None:
            self._server.close()
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request or one tunnel; later requests of the connection go to the same address."""
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *fields = head.removesuffix("\r\n\r\n").split("\r\n")
                method, target, _ = first.split(" ")
                addresses, port = await self._judge(method, target, fields)
                if not addresses:
                    writer.write(_REFUSED)
                    await writer.drain()
                    return
                from_upstream, upstream = await _connect(addresses, port)
                try:
                    if method == "CONNECT":
                        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    else:
                        upstream.write(_request(method, target, fields))
                    await _run_until_one_ends(_copy(reader, upstream), _copy(from_upstream, writer))
                finally:
                    upstream.close()
            finally:
                writer.close()

    async def _judge(self, method: str, target: str, fields: list[str]) -> tuple[tuple[str, ...], int]:
        """Return the target's addresses and port; none if it is not allowed. Raises ValueError."""
        given = next((line for line in fields if line.lower().startswith("proxy-authorization:")), "")
        scheme, _, login = given.partition(":")[2].strip().partition(" ")
        if not secrets.compare_digest(f"{scheme.lower()} {login}".encode(), self._login):
            return (), 0
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parts.hostname or "", parts.port or 80
        try:
            self._hosts.require_scheme(parts.scheme)
            return await self._hosts.addresses(host, port), port
        except Setback:
            return (), 0


def _request(method: str, target: str, fields: list[str]) -> bytes:
    """Rewrite a request for the server itself, which closes the connection after it."""
    parts = urlsplit(target)
    path = target.removeprefix(f"{parts.scheme}://{parts.netloc}") or "/"
    kept = [line for line in fields if line.partition(":")[0].lower() not in _OWN]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1")


async def _connect(
    addresses: tuple[str, ...], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers. Raises OSError."""
    failed = OSError()
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port)
        except OSError as error:
            failed = error
    raise failed


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_CHUNK):
        writer.write(piece)
        await writer.drain()


async def _run_until_one_ends(one: Coroutine[None, None, None], other: Coroutine[None, None, None]) -> None:
    """Run both until one of them ends."""
    tasks = [asyncio.ensure_future(copy) for copy in (one, other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


HELPERS: Final = 4
"""Processes that ask stores, of some 40 MB each; as many again for waiting namespaces, and our identity."""
IDENTITY: Final = re.compile(r"(AWS|AZURE|GOOGLE|IDENTITY|MSI)_.*|SERVICE_ACCOUNT")
"""Variables that hold the controller's own identity; obstore prefers some of them to what a Secret holds."""
ADVICE: Final = {
    "AuthenticationFailed": "check the Secret that spec.bucket.secretRef names, and what it may read",
    "CertificateRefused": "if the store is the right one, put its CA's certificate as ca.crt into "
    "the Secret that spec.bucket.certSecretRef names",
    "BucketNotFound": "check spec.bucket.bucketName and spec.bucket.endpoint",
}

_STORES: Final = {"generic": Scheme.S3, "aws": Scheme.S3, "gcp": Scheme.GOOGLE, "azure": Scheme.AZURE}
_AZURE: Final = {
    "accountKey": "account_key", "sasKey": "sas_key",
    "tenantId": "tenant_id", "clientId": "client_id", "clientSecret": "client_secret",
}  # fmt: skip


class BucketFactory(BackendFactory[BucketSpec]):
    """Opens buckets; all of them share a few helper processes."""

    def __init__(
        self,
        secret: ReadSecret,
        hosts: Hosts | None = None,
        *,
        authors: bool = True,
        cloud_identity: bool = True,
    ) -> None:
        """`hosts`: where stores may be; None: anywhere. `authors`: whether status and Events name signers.
        `cloud_identity`: whether sources without a Secret may use the controller's own identity.
        """
        self._hosts = hosts
        self._proxy = None if hosts is None else JudgingProxy(hosts)
        self._authors = authors
        self._cloud_identity = cloud_identity
        self._secrets = Secrets(secret)
        self._own = Helpers((CLIENT,))
        self._others = Helpers((CLIENT,), without=IDENTITY)
        self._places = Places(HELPERS, HELPERS, resource="buckets")

    async def open(self, spec: BucketSpec, request: FetchRequest) -> BucketBackend:
        """The source that `spec` and its Secrets describe. Raises Setback."""
        self._require_usable(spec)
        namespace = request.key.namespace
        read = self._secrets.optional
        secret = await read(spec.secret_ref, request, "spec.bucket.secretRef")
        authority = await read(spec.cert_secret_ref, request, "spec.bucket.certSecretRef")
        proxy = await read(spec.proxy_secret_ref, request, "spec.bucket.proxySecretRef")
        client = {"timeout": f"{request.timeout:g}s", **_authorities(authority)}
        if proxy is not None:
            client["proxy_url"] = proxy_url(proxy, ("http", "https"))
        bucket = bucket_of(spec, secret, client)
        deadline = Deadline(request.timeout, bucket.display_name)
        store = urlsplit(bucket.endpoint or _own_host(bucket)).hostname or ""
        proxied = urlsplit(client.get("proxy_url", "")).hostname or ""
        # A proxy can read plain HTTP.
        reader = proxied if proxied and bucket.endpoint.startswith("http:") else store
        for shown, host in ((secret, store), (secret, reader), (authority, store), (proxy, proxied)):
            if shown is not None:
                shown.require_host(host)
        async with deadline.limit():
            await self._judge(bucket.endpoint or _own_host(bucket), client.get("proxy_url"))
            if spec.sts is not None:
                await self._judge(spec.sts.endpoint, client.get("proxy_url"))
        if self._proxy is not None and proxy is None and _asks_its_endpoint_alone(bucket, spec):
            # obstore looks the name up again, and follows redirects.
            own = await self._proxy.url()
            hidden = (urlsplit(own).password or "", *bucket.secrets)
            bucket = replace(bucket, client={**client, "proxy_url": own}, secrets=hidden)
        helpers = self._own if spec.uses_own_identity else self._others
        tasks = LimitedTasks(helpers, self._places, namespace, deadline, TASK, "BucketOperationFailed")
        trust = await self._trust(request)
        return BucketBackend(bucket, in_helper(tasks), advice=ADVICE, authors=self._authors, trust=trust)

    async def close(self) -> None:
        """End the helpers."""
        await asyncio.gather(self._own.close(), self._others.close())
        if self._proxy is not None:
            await self._proxy.close()

    def _require_usable(self, spec: BucketSpec) -> None:
        """Raise Stalled where the spec is invalid, or uses an identity that it may not use."""
        if spec.uses_own_identity and not self._cloud_identity:
            raise Stalled("IdentityDenied", NO_IDENTITY.format("bucket", spec.provider))
        with stall_on_invalid_text():
            require(spec.cluster_problems())

    async def _judge(self, endpoint: str, proxy: str | None) -> None:
        """Raise Stalled (HostDenied, URLInvalid) where no source may have the store, or its proxy."""
        if self._hosts is None:
            return
        asked = urlsplit(endpoint)
        self._hosts.require_scheme(asked.scheme)
        if proxy is not None:
            self._hosts.require_name(asked.hostname or "")
            asked = urlsplit(proxy)
        if asked.hostname:
            await self._hosts.addresses(asked.hostname, asked.port or 443)

    async def _trust(self, request: FetchRequest) -> ManifestTrust | None:
        if request.verify is None:
            return None
        secret = await self._secrets.require(request.verify.keys, request, "spec.verify.secretRef")
        from controller.sources.cosign_keys import read_cosign_keys  # noqa: PLC0415 - for signatures alone

        keys = read_cosign_keys(secret)
        advice = in_cluster(request.key, secret.name, (key.name for key in keys))
        return ManifestTrust(keys, epoch({"provider": "bucket"}, secret.content), advice)


def _asks_its_endpoint_alone(bucket: Bucket, spec: BucketSpec) -> bool:
    """Return whether obstore asks no other host, such as one for tokens or a proxy."""
    by_secret = spec.secret_ref is not None and "client_secret" not in bucket.config
    given = by_secret or bucket.config.get("skip_signature") is True
    asked = urlsplit(bucket.endpoint or _own_host(bucket))
    return given and not system_proxy(asked.scheme, asked.hostname or "")


def _own_host(bucket: Bucket) -> str:
    """Return the host at which obstore finds a bucket that has no endpoint."""
    if bucket.store is Scheme.GOOGLE:
        return KNOWN["gcp"]
    return f"https://s3.{bucket.config.get('region', 'us-east-1')}.amazonaws.com"


def bucket_of(spec: BucketSpec, secret: SecretTexts | None, client: Mapping[str, Any]) -> Bucket:
    """Return the bucket of a spec, with the credentials in `secret`. Raises Stalled."""
    with stall_on_invalid_text():
        require(spec.cluster_problems())
        endpoint = spec.store_url
    store = _STORES[spec.provider]
    if store is Scheme.S3:
        access = _s3(spec, secret)
    else:
        access = _google(secret) if store is Scheme.GOOGLE else _azure(endpoint, secret)
    proxy = urlsplit(client.get("proxy_url", "")).password or ""
    hidden = {*access.words, proxy, unquote(proxy)} - {""}
    return Bucket(
        store,
        spec.bucket_name,
        spec.prefix,
        # obstore knows the host of each region itself.
        "" if endpoint == KNOWN.get(spec.provider) else endpoint,
        access.config,
        client,
        access.pair,
        tuple(sorted(hidden, key=len, reverse=True)),
    )


class _Access(NamedTuple):
    """Configuration of a store from a Secret."""

    config: dict[str, Any]
    pair: tuple[str, str] | None = None
    words: tuple[str, ...] = ()
    """What must not be shown."""


def _s3(spec: BucketSpec, secret: SecretTexts | None) -> _Access:
    config: dict[str, Any] = {"virtual_hosted_style_request": False}
    if spec.region:
        config["region"] = spec.region
    if spec.sts is not None:
        config["aws_endpoint_url_sts"] = spec.sts.endpoint.rstrip("/")
    if secret is None:
        # The controller's own keys are sent to AWS alone.
        return _Access(config | {"skip_signature": spec.provider == "generic"})
    pair = (secret.require("accesskey", "for S3"), secret.require("secretkey", "for S3"))
    return _Access(config | {"skip_signature": False}, pair, pair)


def _google(secret: SecretTexts | None) -> _Access:
    # A key may name a host, which would not have been checked.
    config = {"base_url": KNOWN["gcp"]}
    if secret is None:
        return _Access(config)
    return _Access(config | {"service_account_key": secret.require("serviceaccount", "for gcp")})


def _azure(endpoint: str, secret: SecretTexts | None) -> _Access:
    config: dict[str, Any] = {"account_name": azure_account(endpoint)}
    if secret is None:
        return _Access(config)
    given = {name: word for key, name in _AZURE.items() if (word := secret.line(key))}
    whole = {"tenant_id", "client_id", "client_secret"}
    if not {"account_key", "sas_key"} & given.keys() and not whole <= given.keys():
        raise secret.invalid("needs 'accountKey', or 'sasKey', or 'tenantId', 'clientId' and 'clientSecret'")
    if {"account_key", "sas_key"} & given.keys():
        # obstore would request a token from another host, over connections that are not checked.
        given = {name: word for name, word in given.items() if name not in whole}
    words = tuple(given.get(name, "") for name in ("account_key", "sas_key", "client_secret"))
    return _Access(config | given, None, words)


def _authorities(secret: SecretTexts | None) -> dict[str, str]:
    if secret is None:
        return {}
    if secret.text("tls.crt") or secret.text("tls.key"):
        raise secret.invalid("a store cannot be shown a client certificate; leave 'ca.crt' alone")
    authority = secret.pem("ca.crt", "CERTIFICATE")
    if not authority:
        raise secret.invalid("key 'ca.crt' is missing")
    return {"root_certificate": authority}
