"""Registries for verbs that need no cluster: a login, and a folder pushed as an artifact."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from controller.api.addresses import DEFAULT_TAG, ArtifactAddress, check_digest, check_tag, parse_address
from controller.api.fields import read
from controller.api.meta import SUBJECT
from controller.api.source_spec import LayerSelector, OciReference
from controller.runtime.limits import Places
from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Failed, Stalled, stall_on_invalid_text
from controller.sources.deadline import Deadline
from controller.sources.git_repository import describe
from controller.sources.oci_backend import OciBackend
from controller.sources.oci_manifest import AUTHORS, CREATED, REVISION, SOURCE
from controller.sources.oci_package import Package, package, sign
from controller.sources.oci_registry import (
    Registry,
    RegistryAccess,
    RegistryClient,
    RegistryLogin,
    Scope,
    login_from,
    sha256,
)
from controller.sources.oci_signatures import CosignTrust, KeyJudge
from controller.sources.secrets import OF_OPTIONS, on_command_line
from controller.sources.signing_keys import epoch
from evaluator.flags.model import EMPTY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from evaluator.host.signatures import PrivateKey


_HELPER_SECONDS: Final = 30.0
_MOST_BYTES: Final = 1024**2
_HELPER: Final = re.compile(r"[A-Za-z0-9_.-]+")


@contextlib.asynccontextmanager
async def registry_of(
    address: ArtifactAddress, *, actions: str = "pull", login: RegistryLogin | None = None
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
        trust = _trust(keys) if keys else None
        yield OciBackend(registry, followed, LayerSelector(), interval=interval, trust=trust)


def _trust(keys: Mapping[str, bytes]) -> CosignTrust:
    """Raises Stalled for a key that cannot be read."""
    from controller.sources.cosign_keys import read_cosign_keys  # noqa: PLC0415 - for signatures alone

    trusted = read_cosign_keys(SecretTexts(OF_OPTIONS, keys))
    judge = KeyJudge(trusted, on_command_line(keys).add_key, Places(1, 1), namespace="")
    return CosignTrust(judge, epoch({"provider": "cosign"}, keys))


def parse_target(text: str, *, insecure: bool = False) -> tuple[ArtifactAddress, OciReference]:
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


async def _docker_login(address: ArtifactAddress) -> RegistryLogin | None:
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


PUSH_TIMEOUT: Final = 600.0
"""Seconds for an upload."""


@dataclass(frozen=True, slots=True)
class PushOptions:
    """A folder to push, its target, and the artifact's metadata."""

    target: str
    """`oci://HOST/REPOSITORY[:TAG]`."""
    folder: Path
    insecure: bool = False
    login: tuple[str, str] | None = field(default=None, repr=False)
    """Username and password. None: taken from Docker's own configuration; without an entry there is none."""
    source: str | None = None
    revision: str | None = None
    author: str | None = None
    """None, of all three: what the folder's Git repository says."""
    key: Path | None = None
    """A private key in PEM that the artifact is signed with; None: it is not signed."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push."""

    reference: str
    """`oci://HOST/REPOSITORY:TAG@sha256:…`."""
    changed: bool
    """Whether the folder had uncommitted changes, though its revision names a commit."""


class FolderRefusedError(ValueError):
    """The folder, or the key, cannot be used as it is."""


@contextlib.contextmanager
def _refuse_folder(place: Path) -> Iterator[None]:
    """FolderRefusedError for an OSError or Stalled of the block, which has to do with `place`."""
    try:
        yield
    except Stalled as stalled:
        raise FolderRefusedError(f"{place}: {stalled.message}") from stalled
    except OSError as error:
        raise FolderRefusedError(f"{error.filename or place}: {error.strerror or error}") from error


async def push(options: PushOptions) -> Pushed:
    """Push a folder. Raises Setback, FolderRefusedError."""
    address, target = parse_target(options.target, insecure=options.insecure)
    if target.digest:
        raise Stalled(
            "InvalidReference", "an artifact is pushed to a tag; its digest follows from its content"
        )
    tag = target.tag or DEFAULT_TAG
    key = None if options.key is None else await asyncio.to_thread(key_at, options.key)
    made, changed = await asyncio.to_thread(_package_files, options)
    async with (
        registry_of(address, actions="pull,push", login=_login(options.login)) as registry,
        Deadline(PUSH_TIMEOUT, str(address)).limit(),
    ):
        for blob in (made.config, made.layer):
            await registry.push_blob(blob)
        if key is not None:
            # Before the tag moves, so that its followers never find an unsigned manifest.
            await sign(registry, made.digest, key)
        await registry.push_manifest(tag, made.manifest)
    return Pushed(f"{address}:{tag}@{made.digest}", changed)


def key_at(path: Path) -> PrivateKey:
    """The private key in a file. Raises FolderRefusedError."""
    with _refuse_folder(path):
        content = path.read_bytes()
    from controller.sources.cosign_keys import read_private_key  # noqa: PLC0415 - for signatures alone

    try:
        return read_private_key(content)
    except ValueError as error:
        raise FolderRefusedError(f"{path}: {error}") from error


def _package_files(options: PushOptions) -> tuple[Package, bool]:
    folder = options.folder
    if not folder.is_dir():
        raise FolderRefusedError(f"{folder} {'is not a folder' if folder.exists() else 'does not exist'}")
    description = describe(folder)
    annotations = {} if description is None else {
        SOURCE: description.source,
        REVISION: description.revision + ("-dirty" if description.changed else ""),
        AUTHORS: description.author, CREATED: description.created, SUBJECT: description.subject,
    }  # fmt: skip
    given = {SOURCE: options.source, REVISION: options.revision, AUTHORS: options.author}
    annotations |= {key: text for key, text in given.items() if text is not None}
    with _refuse_folder(folder):
        made = package(folder, annotations)
    return made, description is not None and description.changed and options.revision is None


def _login(given: tuple[str, str] | None) -> RegistryLogin | None:
    return None if given is None else RegistryLogin(*given)


PROMOTE_TIMEOUT: Final = 60.0
"""Seconds for each of the two steps of a promotion."""


@dataclass(frozen=True, slots=True)
class PromoteOptions:
    """An artifact, and the tag that is to point at it."""

    target: str
    """`oci://HOST/REPOSITORY@sha256:…`; a tag is read once."""
    tag: str
    """The tag that moves."""
    keys: Mapping[str, bytes]
    """Public keys in PEM by name; one must have signed the artifact, unless there are none."""
    insecure: bool = False
    login: tuple[str, str] | None = field(default=None, repr=False)
    """As of `PushOptions`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An artifact that may be promoted."""

    digest: str
    signer: str
    """Who signed it, by the name of the key; empty: no signature was asked for."""


async def find_candidate(options: PromoteOptions) -> Candidate:
    """The artifact that the options name, with its signature verified. Raises Setback."""
    address, source = parse_target(options.target, insecure=options.insecure)
    with stall_on_invalid_text():
        check_tag(options.tag)
    trust = _trust(options.keys) if options.keys else None
    async with (
        registry_of(address, login=_login(options.login)) as registry,
        Deadline(PROMOTE_TIMEOUT, str(address)).limit(),
    ):
        digest = sha256(await registry.manifest(source.digest or source.tag or DEFAULT_TAG))
        signer = None if trust is None else await trust.signer(registry, digest)
    return Candidate(digest, "" if signer is None else signer.name)


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of a promotion."""

    reference: str
    """`oci://HOST/REPOSITORY:TAG@sha256:…`."""
    previous: str
    """The digest that the tag pointed at before; empty: there was no such tag."""


async def promote(options: PromoteOptions, digest: str) -> Promoted:
    """Have the tag point at the manifest `digest`, with the same bytes. Raises Setback, and Failed where
    another digest is at the tag afterwards.
    """
    address, _ = parse_target(options.target, insecure=options.insecure)
    async with (
        registry_of(address, actions="pull,push", login=_login(options.login)) as registry,
        Deadline(PROMOTE_TIMEOUT, str(address)).limit(),
    ):
        content = await registry.manifest(digest)
        before = await registry.find_manifest(options.tag)
        previous = sha256(before) if before else ""
        if previous != digest:
            await registry.push_manifest(options.tag, content)
            # A registry compares nothing when it writes: another push may have come between.
            if (now_there := await registry.digest_of(options.tag)) != digest:
                message = f"{address}:{options.tag} was moved to {now_there} by somebody else meanwhile"
                raise Failed("OCIArtifactPushFailed", message)
    return Promoted(f"{address}:{options.tag}@{digest}", previous)
