"""Registries read with the controller's own identity at AWS, Azure and Google, by stand-ins for these."""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.api.source_spec import OciSpec
from controller.runtime.setbacks import Failed, Setback, Stalled
from controller.sources.oci_backend import OciFactory
from controller.sources.oci_registry import RegistryLogin
from controller.sources.registry_identity import IdentityLogins
from tests.clouds import AUDIENCE, ENTRA, HOSTS, KEY, POD, SESSION, USERS, Clouds, stand_ins
from tests.registry.artifacts import Pusher, flux
from tests.registry.front import Answer
from tests.registry.htpasswd import LOGIN, admit, guarded_registry
from tests.worlds.sources import LOOK, read_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

PROVIDERS: Final = sorted(HOSTS)
VARIABLES: Final = re.compile(r"(AWS|AZURE|GOOGLE|GCE)_.*")
METADATA: Final = {
    "aws": ["169.254.169.254", "169.254.169.254", "169.254.169.254", "api.ecr.eu-west-1.amazonaws.com"],
    "azure": ["169.254.169.254", "shop.azurecr.io"],
    "gcp": ["metadata.google.internal"],
}
"""The hosts that are asked on a machine of the provider, in order."""


@pytest.fixture
def provider() -> str:
    return "aws"


@pytest.fixture
def clouds(provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    """Those whose registry, with team/flags:latest, takes the login of `provider`."""
    for name in [name for name in os.environ if VARIABLES.fullmatch(name)]:
        monkeypatch.delenv(name)
    folder = tmp_path / "registry"
    folder.mkdir()
    with guarded_registry(folder) as port:
        Pusher(f"http://127.0.0.1:{port}", {"Authorization": LOGIN.basic}).push(
            "team/flags", "latest", flux({"flags.json": "{}"})
        )
        admit(folder, USERS[provider])
        with stand_ins(port, LOGIN.password, monkeypatch) as made:
            yield made


async def no_secret(namespace: str, name: str, account: str | None) -> Mapping[str, bytes] | None:
    del namespace, name, account
    return None


@pytest.fixture
async def factory() -> AsyncIterator[OciFactory]:
    made = OciFactory(no_secret)
    yield made
    await made.close()


def spec(provider: str, host: str = "", **more: Any) -> OciSpec:
    url = f"oci://{host or HOSTS[provider]}/team/flags"
    return OciSpec.model_validate({"url": url, "provider": provider, **more})


async def resolve(factory: OciFactory, provider: str, **more: Any) -> str:
    return str(await (await factory.open(spec(provider, **more), LOOK)).resolve())


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    read = loop.time
    monkeypatch.setattr(loop, "time", lambda: read() + seconds)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_identity_of_a_machine_reads_its_provider_s_registry(
    provider: str, clouds: Clouds, factory: OciFactory, tmp_path: Path
) -> None:
    source = await factory.open(spec(provider), LOOK)
    (tmp_path / "files").mkdir()
    await source.fetch(await source.resolve(), tmp_path / "files")
    assert read_files(tmp_path / "files") == {"flags.json": "{}"}
    assert clouds.hosts == METADATA[provider]


def federated(folder: Path, **more: Any) -> dict[str, str]:
    token, file = folder / "token", folder / "google.json"
    token.write_text(f"{POD}\n")
    file.write_text(json.dumps({
        "type": "external_account", "audience": AUDIENCE, "token_url": "https://sts.googleapis.com/v1/token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "credential_source": {"file": str(token)},
        "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/flags:generateAccessToken",
        **more,
    }))  # fmt: skip
    return {
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/flags",
        "AZURE_FEDERATED_TOKEN_FILE": str(token),
        "AZURE_CLIENT_ID": "client",
        "AZURE_TENANT_ID": "tenant",
        "GOOGLE_APPLICATION_CREDENTIALS": str(file),
    }


@pytest.mark.parametrize(
    ("provider", "hosts"),
    [
        ("aws", ["sts.eu-west-1.amazonaws.com", "api.ecr.eu-west-1.amazonaws.com"]),
        ("azure", ["login.microsoftonline.com", "shop.azurecr.io"]),
        ("gcp", ["sts.googleapis.com", "iamcredentials.googleapis.com"]),
    ],
)
async def test_the_token_of_a_pod_is_exchanged_for_a_login(
    provider: str,
    hosts: list[str],
    clouds: Clouds,
    factory: OciFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in federated(tmp_path).items():
        monkeypatch.setenv(name, value)
    await resolve(factory, provider)
    assert clouds.hosts == hosts


async def test_a_container_of_aws_has_keys_of_its_own(
    clouds: Clouds, factory: OciFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials")
    await resolve(factory, "aws")
    assert clouds.hosts == ["169.254.170.2", "api.ecr.eu-west-1.amazonaws.com"]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_sources_share_a_login_until_most_of_its_life_is_over(
    provider: str, clouds: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = IdentityLogins(provider)
    await asyncio.gather(*(logins.login(HOSTS[provider], refused=False) for _ in range(5)))
    assert clouds.hosts == METADATA[provider]
    life = 12 * 3600 if provider != "azure" else 3 * 3600
    pass_time(monkeypatch, 0.79 * life)
    await logins.login(HOSTS[provider], refused=False)
    assert clouds.hosts == METADATA[provider]
    pass_time(monkeypatch, 0.02 * life)
    await logins.login(HOSTS[provider], refused=False)
    assert clouds.hosts == METADATA[provider] * 2
    await logins.close()


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_login_that_the_registry_refuses_is_asked_for_once_anew(
    provider: str, clouds: Clouds, factory: OciFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds.login = "withdrawn"
    with pytest.raises(Failed, match="answers 401") as raised:
        await resolve(factory, provider)
    assert raised.value.reason == "AuthenticationFailed"
    # A login that is younger than a minute would be no other.
    assert clouds.hosts == METADATA[provider]
    clouds.login = LOGIN.password
    pass_time(monkeypatch, 61)
    await resolve(factory, provider)
    assert clouds.hosts == METADATA[provider] * 2


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_login_that_the_token_service_refuses_is_asked_for_once_anew(
    provider: str, clouds: Clouds, factory: OciFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, host = clouds.registry, HOSTS[provider]

    def answer(asked: str, _: Answer) -> Answer:
        shown = front.authorizations[-1]
        if asked.startswith("GET /token?"):
            known = shown == RegistryLogin(USERS[provider], clouds.login).basic
            return Answer(200, body=b'{"token": "good"}') if known else Answer(401)
        if shown == "Bearer good":
            return Answer(200, {"Docker-Content-Digest": f"sha256:{'a' * 64}"})
        return Answer(401, {"WWW-Authenticate": f'Bearer realm="https://{host}/token"'})

    front.instead = answer
    await resolve(factory, provider)
    clouds.login = "another"
    pass_time(monkeypatch, 61)
    await resolve(factory, provider, url=f"oci://{host}/team/others")
    assert clouds.hosts == METADATA[provider] * 2


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_identity_without_rights_is_reported_without_its_credentials(
    provider: str, clouds: Clouds, factory: OciFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    for name, value in federated(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "token").write_text("token-of-another-pod")
    with pytest.raises(Failed) as raised:
        await resolve(factory, provider)
    refused = raised.value
    assert refused.reason == "AuthenticationFailed"
    assert refused.message.startswith(f"the controller's own identity gives no login for provider {provider}")
    assert f"{clouds.hosts[-1]} answers 403; give the controller" in refused.message
    shown = refused.message + caplog.text
    assert not any(word in shown for word in ("token-of-another-pod", KEY, SESSION, ENTRA, LOGIN.password))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_that_is_not_as_published_is_reported(
    provider: str, clouds: Clouds, factory: OciFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clouds, "answer", lambda _: {"access_token": 3})
    with pytest.raises(Failed, match="an answer of the provider is not as it is published"):
        await resolve(factory, provider)


async def test_a_key_of_a_service_account_is_no_identity_of_the_controller(
    clouds: Clouds, factory: OciFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in federated(tmp_path, type="service_account").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Failed, match="must be an external_account"):
        await resolve(factory, "gcp")
    assert not clouds.asked


async def test_a_token_service_on_another_host_gets_no_login(clouds: Clouds, factory: OciFactory) -> None:
    realm = 'Bearer realm="https://tokens.example.com/token"'
    clouds.registry.instead = lambda asked, answer: Answer(401, {"WWW-Authenticate": realm})
    with pytest.raises(Setback, match=r"token service is on another host, tokens\.example\.com"):
        await resolve(factory, "aws")
    assert not clouds.asked


@pytest.mark.parametrize(
    ("provider", "host"),
    [
        ("aws", "210987654321.dkr.ecr-fips.us-gov-west-1.amazonaws.com"),
        ("aws", "210987654321.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("azure", "shop.azurecr.cn"), ("azure", "shop-a1b2.azurecr.us"),
        ("gcp", "us-west1-docker.pkg.dev"), ("gcp", "gcr.io"), ("gcp", "eu.gcr.io"),
    ],
)  # fmt: skip
def test_the_identity_is_sent_to_each_registry_of_its_provider(provider: str, host: str) -> None:
    assert not list(spec(provider, host).cluster_problems())


@pytest.mark.parametrize(
    ("provider", "host"),
    [
        ("aws", f"{HOSTS['aws']}.evil.com"), ("aws", "evil.elb.eu-west-1.amazonaws.com"),
        ("aws", f"{HOSTS['aws']}:8443"), ("aws", "public.ecr.aws"),
        ("azure", "azurecr.io"), ("azure", "evil.com"), ("azure", "a.b.azurecr.io"),
        ("gcp", "evil.pkg.dev"), ("gcp", "gcr.io.evil.com"), ("gcp", "docker.pkg.dev"), ("gcp", HOSTS["aws"]),
    ],
)  # fmt: skip
async def test_the_identity_is_sent_to_no_other_registry(
    provider: str, host: str, factory: OciFactory
) -> None:
    with pytest.raises(Stalled, match=rf"^spec\.oci\.url: .*must be a host of {provider}"):
        await factory.open(spec(provider, host), LOOK)
    assert not list(spec(provider, host, secretRef={"name": "login"}).cluster_problems())


@pytest.mark.parametrize(
    "route", [{"proxySecretRef": {"name": "proxy"}}, {"certSecretRef": {"name": "ca"}}, {"insecure": True}]
)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_controller_s_identity_is_sent_by_no_route_of_a_source_of_artifacts(
    provider: str, route: dict[str, Any], factory: OciFactory
) -> None:
    with pytest.raises(Stalled, match=r"^spec\.oci: without secretRef, aws, azure and gcp use") as setback:
        await factory.open(spec(provider, **route), LOOK)
    assert setback.value.reason == "IdentityDenied"
    assert not list(spec(provider, secretRef={"name": "login"}, **route).cluster_problems())


async def test_an_installation_may_turn_its_identity_off_for_registries() -> None:
    factory = OciFactory(no_secret, cloud_identity=False)
    with pytest.raises(Stalled, match="--deny-cloud-identity lets no source of provider aws use") as setback:
        await factory.open(spec("aws"), LOOK)
    assert setback.value.reason == "IdentityDenied"
    await factory.open(spec("generic", "registry.example.com"), LOOK)
    await factory.close()
