"""Who asks a registry where no cluster has Secrets: Docker's configuration, its helpers, a proxy."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from controller.api.addresses import parse_address
from controller.local.registries import artifact_source, registry_of
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.oci_registry import RegistryLogin
from tests.registry.artifacts import flux
from tests.registry.fixtures import Shelf, registry, shelf
from tests.registry.front import before

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["registry", "shelf"]

ADDRESS = parse_address("oci://ghcr.io/team/flags")


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Docker's configuration."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


def configure(docker: Path, **content: object) -> None:
    (docker / "config.json").write_text(json.dumps(content))


def helper(docker: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program that keeps logins, called `docker-credential-tests`."""
    program = docker / "docker-credential-tests"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker}:{os.environ['PATH']}")


async def login() -> RegistryLogin | None:
    async with registry_of(ADDRESS) as found:
        return found.scope.access.login


async def test_without_a_configuration_no_helper_is_asked(docker: Path) -> None:
    assert await login() is None


async def test_a_login_of_the_configuration_is_used_and_one_that_is_given_goes_before(docker: Path) -> None:
    configure(docker, auths={"ghcr.io": {"username": "ada", "password": "word"}}, credsStore="never")
    assert await login() == RegistryLogin("ada", "word")
    async with registry_of(ADDRESS, login=RegistryLogin("bob", "other")) as found:
        assert found.scope.access.login == RegistryLogin("bob", "other")


@pytest.mark.parametrize("how", [{"credsStore": "tests"}, {"credHelpers": {"ghcr.io": "tests"}}])
async def test_a_helper_is_asked_for_the_host(
    docker: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, object]
) -> None:
    configure(docker, auths={"ghcr.io": {}}, **how)
    answer = '{"Username": "ada", "Secret": "of %s"}'
    helper(docker, monkeypatch, f'[ "$1" = get ] && printf \'{answer}\' "$(cat)"')
    assert await login() == RegistryLogin("ada", "of ghcr.io")


async def test_a_helper_that_knows_no_login_leaves_the_request_anonymous(
    docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(docker, credsStore="tests")
    helper(docker, monkeypatch, "echo credentials not found; exit 1")
    assert await login() is None


@pytest.mark.parametrize(
    ("script", "message"),
    [("""printf '{"Username": "<token>", "Secret": "x"}'""", "identity tokens"), (None, "cannot be run")],
)
async def test_a_credential_helper_that_fails_is_reported(
    docker: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, message: str
) -> None:
    configure(docker, credsStore="tests")
    if script is not None:
        helper(docker, monkeypatch, script)
    with pytest.raises(Failed, match=message):
        await login()


async def test_a_configuration_that_is_no_json_is_reported(docker: Path) -> None:
    (docker / "config.json").write_text("{")
    with pytest.raises(Stalled, match="is not JSON"):
        await login()


@pytest.mark.parametrize(
    ("written", "reference", "name"),
    [
        ("", None, "latest"), (":v1.0.0", None, "v1.0.0"), ("", "v1.0.0", "v1.0.0"),
        ("", "tag:v1.0.0", "v1.0.0"), ("", "semver:1.x", "v1.1.0"), ("@{digest}", None, ""),
        ("", "digest:{digest}", ""),
    ],
)  # fmt: skip
async def test_what_is_followed_is_named_in_the_address_or_beside_it(
    docker: Path, shelf: Shelf, written: str, reference: str | None, name: str
) -> None:
    for tag in ("v1.0.0", "v1.1.0"):
        shelf.pusher.push(shelf.repository, tag, flux({"a.json": tag}))
    digest = shelf.pusher.push(shelf.repository, "latest", flux({"a.json": "latest"}))
    location = shelf.url + written.format(digest=digest)
    named = reference and reference.format(digest=digest)
    async with artifact_source(location, reference=named, interval=1.0, insecure=True) as source:
        assert (await source.resolve()).name == name


@pytest.mark.parametrize("reference", ["branch:main", "tag:-x", "semver:nonsense", "digest:12"])
async def test_a_reference_that_an_artifact_cannot_have_is_reported(docker: Path, reference: str) -> None:
    with pytest.raises(Stalled) as raised:
        async with artifact_source("oci://h/r", reference=reference, interval=1.0, insecure=False):
            pass
    assert raised.value.reason == "InvalidReference"


async def test_a_tag_in_both_places_is_refused(docker: Path) -> None:
    with pytest.raises(Stalled, match="not in both"):
        async with artifact_source("oci://h/r:v1", reference="v2", interval=1.0, insecure=False):
            pass


async def test_the_environments_proxy_is_used_unless_the_host_is_excepted(
    docker: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = shelf.pusher.push(shelf.repository, "latest", flux({"a.json": "1"}))

    async def look() -> str:
        async with artifact_source(shelf.url, reference=None, interval=1.0, insecure=True) as source:
            return (await source.resolve()).digest

    with before(shelf.front.target) as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy.host}")
        assert await look() == digest
        assert [asked.partition("/v2/")[0] for asked in proxy.asked] == [f"HEAD http://{shelf.front.host}"]
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await look() == digest
        assert len(proxy.asked) == 1
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(Stalled, match="no http proxy"):
        await look()
