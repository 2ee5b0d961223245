"""Registries for verbs that need no cluster, with the login of Docker's own configuration."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.api.objects.fields import read
from controller.api.parsing.oci_address import Address, check_digest, check_tag, parse_address
from controller.api.sources.oci_source import LayerSelector, OciReference
from controller.runtime.reconciling.setbacks import Failed, Stalled, stall_on_invalid_text
from controller.runtime.tenancy.places import Places
from controller.runtime.user_text.secret_texts import SecretTexts
from controller.sources.oci.oci_backend import OciBackend
from controller.sources.oci.oci_credentials import RegistryAccess, RegistryLogin, login_from
from controller.sources.oci.registry import Registry
from controller.sources.oci.registry_client import RegistryClient, Scope
from controller.sources.oci.signatures import CosignTrust, KeyJudge
from controller.sources.trust_advice import OF_OPTIONS, on_command_line
from controller.sources.verification.cosign import read_cosign_keys
from controller.sources.verification.keys import epoch
from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

_HELPER_SECONDS: Final = 30.0
_MOST_BYTES: Final = 1024**2
_HELPER: Final = re.compile(r"[A-Za-z0-9_.-]+")


@contextlib.asynccontextmanager
async def registry_of(
    address: Address, *, actions: str = "pull", login: RegistryLogin | None = None
) -> AsyncIterator[Registry]:
    """A repository as `login` sees it, or else as the login of Docker's configuration. Raises Setback."""
    client = RegistryClient()
    try:
        access = RegistryAccess(login or await _docker_login(address))
        yield Registry(Scope(address, access, actions), client)
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def artifact_source(
    location: str,
    *,
    reference: str | None,
    interval: float,
    insecure: bool,
    keys: Mapping[str, bytes] = EMPTY,
) -> AsyncIterator[OciBackend]:
    """The artifact at `oci://HOST/REPOSITORY[:TAG|@DIGEST]`, which `reference` (`tag:…`, `semver:…`,
    `digest:…`) names where the location does not; signed with one of `keys`, if there are any. Raises
    Setback.
    """
    address, followed = parse_target(location, insecure=insecure)
    if reference is not None:
        if followed != OciReference():
            raise Stalled("InvalidReference", "name what to follow in the address or by --ref, not in both")
        followed = _reference(reference)
    async with registry_of(address) as registry:
        trust = None
        if keys:
            trusted = read_cosign_keys(SecretTexts(OF_OPTIONS, keys))
            judge = KeyJudge(trusted, on_command_line(keys).add_key, Places(1, 1), namespace="")
            trust = CosignTrust(judge, epoch({"provider": "cosign"}, keys))
        yield OciBackend(registry, followed, LayerSelector(), interval=interval, trust=trust)


def parse_target(text: str, *, insecure: bool = False) -> tuple[Address, OciReference]:
    """`oci://HOST/REPOSITORY[:TAG][@DIGEST]`. Raises Stalled (URLInvalid, InvalidReference)."""
    bare, _, digest = text.partition("@sha256:")
    head, slash, end = bare.rpartition("/")
    name, colon, tag = end.partition(":")
    with stall_on_invalid_text():
        address = parse_address(head + slash + name, insecure=insecure)
        if colon:
            check_tag(tag)
        if digest:
            check_digest(f"sha256:{digest}")
    return address, OciReference(tag=tag or None, digest=f"sha256:{digest}" if digest else None)


def _reference(text: str) -> OciReference:
    kind, colon, value = text.strip().partition(":")
    kind, value = (kind, value) if colon else ("tag", kind)
    if kind not in {"tag", "semver", "digest"}:
        raise Stalled("InvalidReference", f"{text!r}: write tag:NAME, semver:RANGE or digest:sha256:…")
    with stall_on_invalid_text():
        return read(OciReference, {kind: value}, where="--ref")


async def _docker_login(address: Address) -> RegistryLogin | None:
    """Raises Setback."""
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        content = await asyncio.to_thread(_content, path)
    except OSError as error:
        raise Failed("AuthenticationFailed", f"{path}: {error.strerror or error}") from error
    if content is None:
        return None
    login = login_from(str(path), content, address)
    helper = _helper(json.loads(content), address.host) if login is None else None
    return login if helper is None else await _ask_helper(helper, address.host)


def _content(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except FileNotFoundError:
        return None


def _helper(configuration: dict[str, Any], host: str) -> str | None:
    """The program that keeps the login of a host, by the end of its name."""
    helpers = configuration.get("credHelpers")
    own = helpers.get(host) if isinstance(helpers, dict) else None
    name = str(own or configuration.get("credsStore") or "")
    return name if _HELPER.fullmatch(name) else None


async def _ask_helper(helper: str, host: str) -> RegistryLogin | None:
    """What the program answers; None where it knows no login. Raises Failed where it cannot be run."""
    program = f"docker-credential-{helper}"
    try:
        process = await asyncio.create_subprocess_exec(
            program, "get", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        message = f"{program}, which Docker's configuration names, cannot be run: {error.strerror or error}"
        raise Failed("AuthenticationFailed", message) from error
    try:
        async with asyncio.timeout(_HELPER_SECONDS):
            said, _ = await process.communicate(host.encode())
    except TimeoutError as error:
        process.kill()
        await process.wait()
        message = f"{program}: no answer within {_HELPER_SECONDS:g} seconds"
        raise Failed("AuthenticationFailed", message) from error
    try:
        answer = json.loads(said)
        login = RegistryLogin(str(answer["Username"]), str(answer["Secret"]))
    except (ValueError, KeyError, TypeError):
        return None
    if login.username == "<token>":
        raise Failed(
            "AuthenticationFailed", f"{program}: identity tokens are not supported; log in by a password"
        )
    return login
