"""`spec.bucket` and Secrets on a real S3 server, asked as in a cluster, also by our proxy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from pydantic import ValidationError
from yarl import URL

from controller.api.source_spec import BucketSpec
from controller.runtime.helper import TaskLimits
from controller.runtime.hosts import Hosts
from controller.runtime.secret_texts import Binding, SecretContent, SecretTexts
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.backend import FetchRequest
from controller.sources.bucket_backend import TASK
from controller.sources.bucket_factory import BucketFactory, JudgingProxy, bucket_of
from controller.sources.bucket_place import Bucket, Scheme
from tests.s3 import LOGIN, S3, manifest, s3
from tests.worlds.sources import LOOK, Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster(LOGIN)
    yield made
    await made.factory.close()


def of(**spec: Any) -> BucketSpec:
    return BucketSpec.model_validate({"bucketName": "flags", **spec})


def open_bucket(spec: dict[str, Any], content: dict[str, str]) -> Bucket:
    """The bucket of a spec that names a Secret with this content."""
    return bucket_of(of(**spec, secretRef={"name": "bucket"}), secret(**content), {})


def secret(**content: str) -> SecretTexts:
    return SecretTexts(
        "apps/bucket", {key.replace("__", "."): text.encode() for key, text in content.items()}
    )


async def test_keys_in_a_secret_open_a_bucket_and_keys_that_are_changed_close_it(
    cluster: Cluster, store: S3, tmp_path: Path
) -> None:
    store.put(flags___a__json="{}")
    source = await cluster.open(manifest(store, prefix="flags/"))
    into = tmp_path / "into"
    into.mkdir()
    await source.fetch(await source.resolve(), into)
    assert (into / "flags/a.json").read_text() == "{}"
    cluster.secrets["bucket"] = {**LOGIN, "secretkey": "s3cret-of-another"}
    with pytest.raises(Failed, match=r"SignatureDoesNotMatch.*spec\.bucket\.secretRef") as setback:
        await (await cluster.open(manifest(store))).resolve()
    assert setback.value.reason == "AuthenticationFailed"
    assert "s3cret" not in str(setback.value)
    del cluster.secrets["bucket"]
    with pytest.raises(
        Failed, match=r"Secret apps/bucket does not exist; create it, or correct spec\.bucket\.secretRef"
    ):
        await cluster.open(manifest(store))


async def test_without_a_secret_another_provider_s_store_is_read_anonymously(
    cluster: Cluster, store: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def look(request: BaseHTTPRequestHandler) -> bool:
        seen.append(request.headers.get("Authorization"))
        seen.append(request.headers.get("X-Amz-Security-Token"))
        return False

    store.instead = look
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "the-controllers-own")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    spec = manifest(store)
    del spec["secretRef"]
    with pytest.raises(Failed):
        await (await cluster.open(spec)).resolve()
    assert seen == [None, None]
    store.put(a="1")
    await (await cluster.open(manifest(store))).resolve()
    assert "the-controllers-own" not in str(seen)
    assert seen[3] is None


async def test_a_region_is_that_of_the_signature(cluster: Cluster, store: S3) -> None:
    signed: list[str] = []

    def see(request: BaseHTTPRequestHandler) -> bool:
        signed.append(request.headers.get("Authorization", ""))
        return False

    store.put(a="1")
    store.instead = see
    for spec in (manifest(store), manifest(store, region="eu-west-1")):
        await (await cluster.open(spec)).resolve()
    assert ["/us-east-1/s3/" in signed[0], "/eu-west-1/s3/" in signed[1]] == [True, True]


async def test_an_answer_without_an_end_costs_a_helper_and_nothing_else(cluster: Cluster, store: S3) -> None:
    def endless(request: BaseHTTPRequestHandler) -> bool:
        request.send_response_only(200)
        request.send_header("Content-Length", str(10**12))
        request.end_headers()
        piece = b"<Contents>" * 100_000
        while True:
            request.wfile.write(piece)

    store.instead = endless
    source = await cluster.open(manifest(store))
    assert TaskLimits() == TASK
    with pytest.raises(Stalled, match="more memory than it may use") as setback:
        await source.resolve()
    assert setback.value.reason == "LimitExceeded"
    store.instead = lambda _: False
    store.put(a="1")
    await (await cluster.open(manifest(store))).resolve()


async def test_a_helper_that_is_not_needed_any_more_is_ended(cluster: Cluster, store: S3) -> None:
    def silent(request: BaseHTTPRequestHandler) -> bool:
        return bool(request.rfile.read())

    store.instead = silent
    look = FetchRequest(LOOK.key, 0.5, LOOK.freshness)
    with pytest.raises(Failed, match=r"no answer within 0\.5 seconds"):
        await (await cluster.factory.open(BucketSpec.model_validate(manifest(store)), look)).resolve()
    store.instead = lambda _: False
    store.put(a="1")
    sources = [await cluster.open(manifest(store)) for _ in range(6)]
    revisions = await asyncio.gather(*(each.resolve() for each in sources))
    assert len(set(revisions)) == 1


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ({"endpoint": "minio.example.com"}, "https://minio.example.com"),
        ({"endpoint": "minio:9000", "insecure": True}, "http://minio:9000"),
        ({"endpoint": "http://minio:9000/", "insecure": True}, "http://minio:9000"),
        ({"endpoint": "https://minio", "insecure": True}, "https://minio"),
        ({"provider": "aws"}, ""),
    ],
)
def test_an_endpoint_is_a_host_or_a_url(spec: dict[str, Any], url: str) -> None:
    assert of(**spec).store_url == url


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({}, "is required for provider generic"),
        ({"provider": "azure"}, "is required for provider azure"),
        ({"endpoint": "http://minio:9000"}, "needs insecure: true"),
        ({"endpoint": "ftp://minio"}, "write HOST"),
        ({"endpoint": "https://k:s3cret@minio"}, "write HOST"),
        ({"endpoint": "minio/?x"}, "write HOST"),
        ({"endpoint": "minio:99999"}, "write HOST"),
        ({"provider": "aws", "endpoint": "minio.example.com"}, "must be a host of aws"),
        ({"provider": "aws", "endpoint": "evil-s3.amazonaws.com.example.com"}, "must be a host of aws"),
        ({"provider": "aws", "endpoint": "s3-x-1.us-east-1.elb.amazonaws.com"}, "must be a host of aws"),
        ({"provider": "aws", "endpoint": "s3x.y.us-east-1.rds.amazonaws.com"}, "must be a host of aws"),
        (
            {"provider": "gcp", "endpoint": "https://storage.googleapis.com.example.com"},
            "must be a host of gcp",
        ),
        ({"provider": "azure", "endpoint": "https://x.example.com"}, "must be a host of azure"),
    ],
)
def test_a_spec_that_cannot_be_meant_names_its_field(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(Stalled, match=rf"^spec\.bucket\.endpoint: .*{says}") as setback:
        bucket_of(of(**spec), None, {})
    assert "s3cret" not in str(setback.value)


def azure(endpoint: str, **content: str) -> tuple[dict[str, str], dict[str, str], Scheme, str]:
    return {"provider": "azure", "endpoint": endpoint}, content, Scheme.AZURE, endpoint


@pytest.mark.parametrize(
    ("spec", "content", "store", "endpoint", "config"),
    [
        ({"provider": "aws", "endpoint": "s3.amazonaws.com", "region": "eu-west-1"}, None, Scheme.S3, "",
         {"region": "eu-west-1", "skip_signature": False}),
        ({"provider": "gcp", "endpoint": "storage.googleapis.com"}, None, Scheme.GOOGLE, "", {}),
        ({"provider": "gcp"}, {"serviceaccount": "{}"}, Scheme.GOOGLE, "",
         {"service_account_key": "{}", "base_url": "https://storage.googleapis.com"}),
        (*azure("https://me.blob.core.windows.net", accountKey="a\n"),
         {"account_name": "me", "account_key": "a"}),
        (*azure("https://me.example.com", sasKey="a"), {"account_name": "me", "sas_key": "a"}),
        (*azure("https://10.0.0.1/me", sasKey="a"), {"account_name": "me"}),
        ({"endpoint": "minio"}, None, Scheme.S3, "https://minio", {"skip_signature": True}),
    ],
)  # fmt: skip
def test_each_provider_is_opened_as_flux_opens_it(
    spec: dict[str, Any], content: dict[str, str] | None, store: Scheme, endpoint: str, config: dict[str, Any]
) -> None:
    found = bucket_of(of(**spec), None, {}) if content is None else open_bucket(spec, content)
    assert (found.store, found.endpoint) == (store, endpoint)
    assert found.config.items() >= config.items()


@pytest.mark.parametrize("key", ["accountKey", "sasKey"])
def test_a_client_that_is_not_needed_is_no_reason_to_ask_another_host(key: str) -> None:
    login = {key: "a", "tenantId": "t", "clientId": "c", "clientSecret": "x"}
    found = open_bucket({"provider": "azure", "endpoint": "https://me.example.com"}, login)
    assert found.config.keys().isdisjoint({"tenant_id", "client_id", "client_secret"})


@pytest.mark.parametrize(
    ("spec", "content", "says"),
    [
        ({"endpoint": "minio"}, {"accesskey": "a"}, "key 'secretkey' is missing"),
        ({"provider": "gcp"}, {"accesskey": "a"}, "key 'serviceaccount' is missing"),
        ({"provider": "azure", "endpoint": "https://me"}, {"clientId": "a"}, "needs 'accountKey'"),
    ],
)
def test_a_secret_without_a_key_is_named(spec: dict[str, Any], content: dict[str, str], says: str) -> None:
    with pytest.raises(Stalled, match=f"Secret apps/bucket: .*{says}"):
        open_bucket(spec, content)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"tls.crt": "x", "ca.crt": "y"}, "a client certificate"),
        ({"ca.crt": "y"}, "contains no certificate"),
        ({}, "key 'ca.crt' is missing"),
    ],
)
async def test_a_secret_of_certificates_holds_an_authority_alone(
    cluster: Cluster, content: dict[str, str], says: str
) -> None:
    cluster.secrets["trusted"] = content
    spec = {"bucketName": "b", "endpoint": "h", "certSecretRef": {"name": "trusted"}}
    with pytest.raises(Setback, match=says) as setback:
        await cluster.open(spec)
    assert setback.value.reason == "InvalidSecret"


async def test_a_store_is_where_sources_may_be(cluster: Cluster, store: S3) -> None:
    store.put(a="1")
    factory = BucketFactory(cluster.read, Hosts())
    with pytest.raises(Stalled, match=r"127\.0\.0\.1") as setback:
        await factory.open(BucketSpec.model_validate(manifest(store)), LOOK)
    assert setback.value.reason == "HostDenied"
    assert not store.asked
    encrypted = BucketFactory(cluster.read, Hosts((), (), plain_http=False))
    with pytest.raises(Stalled, match="denied by --deny-http-sources"):
        await encrypted.open(BucketSpec.model_validate(manifest(store)), LOOK)
    assert not store.asked
    cluster.secrets["proxy"] = {"address": "http://127.0.0.1:1"}
    behind = {"bucketName": "b", "endpoint": "minio.example.com", "proxySecretRef": {"name": "proxy"}}
    with pytest.raises(Stalled, match=r"127\.0\.0\.1"):
        await factory.open(BucketSpec.model_validate(behind), LOOK)

    async def elsewhere(host: str, port: int) -> tuple[str, ...]:
        return ("192.0.2.1",)

    narrow = BucketFactory(cluster.read, Hosts(("git.example.com",), resolve=elsewhere))
    for provider in ("aws", "gcp"):
        spec = {"bucketName": "b", "provider": provider, "region": "eu-west-1"}
        with pytest.raises(Stalled, match=r"(s3\.eu-west-1\.amazonaws|storage\.googleapis)\.com is not one"):
            await narrow.open(BucketSpec.model_validate(spec), LOOK)
    allowed = BucketFactory(cluster.read, Hosts(("127.0.0.1",), ()))
    await (await allowed.open(BucketSpec.model_validate(manifest(store)), LOOK)).resolve()
    await allowed.close()


@pytest.mark.parametrize(
    "host",
    [
        "s3.amazonaws.com", "s3-eu-west-1.amazonaws.com", "s3.eu-west-1.amazonaws.com",
        "s3.us-gov-west-1.amazonaws.com",
        "s3-fips.dualstack.us-east-1.amazonaws.com", "flags.s3.cn-north-1.amazonaws.com.cn",
        "bucket.vpce-1a2b-3c4d.s3.us-east-1.vpce.amazonaws.com", "s3express-use1-az4.us-east-1.amazonaws.com",
    ],
)  # fmt: skip
def test_the_controller_s_identity_may_be_sent_to_each_host_of_s3(host: str) -> None:
    assert not list(of(provider="aws", endpoint=host).cluster_problems())


@pytest.mark.parametrize(
    "route", [{"proxySecretRef": {"name": "proxy"}}, {"certSecretRef": {"name": "ca"}}, {"insecure": True}]
)
@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
async def test_the_controller_s_identity_is_sent_by_no_route_of_a_source(
    cluster: Cluster, provider: str, route: dict[str, Any]
) -> None:
    endpoint = {"endpoint": "https://account.blob.core.windows.net"} if provider == "azure" else {}
    spec = {"bucketName": "b", "provider": provider, **endpoint, **route}
    with pytest.raises(Stalled, match=r"^spec\.bucket: without secretRef, aws, azure and gcp use") as setback:
        await cluster.open(spec)
    assert setback.value.reason == "IdentityDenied"
    named = BucketSpec.model_validate({**spec, "secretRef": {"name": "bucket"}})
    assert not list(named.cluster_problems())


async def test_an_installation_may_turn_its_identity_off(cluster: Cluster, store: S3) -> None:
    factory = BucketFactory(cluster.read, cloud_identity=False)
    with pytest.raises(Stalled, match="--deny-cloud-identity lets no source of provider gcp use") as setback:
        await factory.open(BucketSpec.model_validate({"bucketName": "b", "provider": "gcp"}), LOOK)
    assert setback.value.reason == "IdentityDenied"
    await factory.open(BucketSpec.model_validate(manifest(store)), LOOK)
    await factory.close()


@pytest.mark.parametrize("bound", ["login", "proxy"])
async def test_a_secret_is_sent_to_no_host_that_its_annotation_does_not_name(bound: str, store: S3) -> None:
    contents = {"login": LOGIN, "proxy": {"address": "http://proxy.example.com"}}

    async def read(namespace: str, name: str, account: str | None) -> SecretContent:
        content = {key: text.encode() for key, text in contents[name].items()}
        return SecretContent(
            content, Binding(namespace, name, ("s3.example.com",) if name == bound else None)
        )

    spec = manifest(store) | {"secretRef": {"name": "login"}, "proxySecretRef": {"name": "proxy"}}
    with pytest.raises(Stalled, match=f"Secret apps/{bound} may not be used for host ") as setback:
        await BucketFactory(read).open(BucketSpec.model_validate(spec), LOOK)
    assert setback.value.reason == "SecretHostDenied"
    assert not store.asked


async def test_a_bound_secret_goes_in_clear_through_no_proxy_that_it_does_not_name(store: S3) -> None:
    contents = {"login": LOGIN, "proxy": {"address": "http://proxy.example.com"}}

    async def read(namespace: str, name: str, account: str | None) -> SecretContent:
        content = {key: text.encode() for key, text in contents[name].items()}
        return SecretContent(content, Binding(namespace, name, ("127.0.0.1",) if name == "login" else None))

    spec = manifest(store) | {"secretRef": {"name": "login"}, "proxySecretRef": {"name": "proxy"}}
    with pytest.raises(Stalled, match=r"used for host proxy\.example\.com"):
        await BucketFactory(read).open(BucketSpec.model_validate(spec), LOOK)


def test_a_region_is_no_part_of_another_host() -> None:
    with pytest.raises(ValidationError, match="region"):
        BucketSpec.model_validate({"bucketName": "b", "provider": "aws", "region": "evil.test/x?"})


def answer_not_found(exchange: BaseHTTPRequestHandler) -> bool:
    exchange.send_error(404)
    return True


@pytest.mark.parametrize(
    ("word", "denied", "plain_http", "status"),
    [
        (None, (), True, 404),
        ("guessed", (), True, 403),
        (None, ("127.0.0.0/8",), True, 403),
        (None, (), False, 403),
    ],
)
async def test_a_request_is_let_through_or_refused(
    tmp_path: Path, word: str | None, denied: tuple[str, ...], plain_http: bool, status: int
) -> None:
    proxy = JudgingProxy(Hosts((), denied, plain_http=plain_http))
    by = URL(await proxy.url())
    by = by if word is None else by.with_password(word)
    with s3(tmp_path) as store:
        store.instead = answer_not_found
        async with aiohttp.ClientSession() as session, session.get(f"{store.url}/a", proxy=by) as answer:
            assert answer.status == status
    await proxy.close()
