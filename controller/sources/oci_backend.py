"""An artifact in a container registry as a source, and a FlagSource's `spec.oci` as one that can be read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from controller.api.addresses import CLOUDS, DEFAULT_TAG, ArtifactAddress, parse_address
from controller.api.fields import require
from controller.api.meta import AUTHOR
from controller.api.parsing import compile_pattern
from controller.api.source_spec import LayerSelector, OciReference, OciSpec, VerifySpec
from controller.artifacts.archive import DEFAULT_LIMITS, ArchiveRefused
from controller.runtime.helpers import Helpers
from controller.runtime.http_client import Route
from controller.runtime.limits import Places
from controller.runtime.secret_texts import Tls, proxy_url
from controller.runtime.setbacks import Failed, Stalled, Waiting, stall_on_invalid_text
from controller.sources.backend import (
    NOTHING_ACCEPTED,
    AcceptedRevision,
    BackendFactory,
    Fetched,
    FetchRequest,
    LocalBackend,
    Revision,
    TreeLimits,
    with_signer,
)
from controller.sources.cosign import MODULE, SignerIdentity
from controller.sources.deadline import Deadline
from controller.sources.oci_manifest import TITLE, ImageLayer, chosen_manifest, copy, extract, read_manifest
from controller.sources.oci_registry import (
    NotFound,
    Registry,
    RegistryAccess,
    RegistryClient,
    RegistryLogin,
    Scope,
    login_from,
)
from controller.sources.oci_signatures import TRUSTED_ROOT, CosignTrust, IdentityJudge, KeyJudge
from controller.sources.registry_identity import IdentityLogins
from controller.sources.secrets import NO_IDENTITY, Secrets, in_cluster
from controller.sources.signing_keys import epoch
from controller.sources.source_files import quarantine
from controller.sources.versions import highest, near, shorten_list

if TYPE_CHECKING:
    import contextlib
    from pathlib import Path

    from controller.runtime.hosts import Hosts
    from controller.sources.secrets import ReadSecret


TIMEOUT: Final = 60.0
"""Seconds for one step, unless there is a deadline."""


@dataclass(frozen=True, slots=True)
class OciBackend(LocalBackend):
    """One repository of a registry at one reference."""

    registry: Registry
    reference: OciReference
    selector: LayerSelector
    deadline: Deadline | None = None
    """For all steps together, where the backend is opened for one request; None: each has `TIMEOUT`."""
    places: Places = field(default_factory=partial(Places, 1), compare=False)
    """Limits the fetches."""
    namespace: str = ""
    interval: float = 10.0
    limits: TreeLimits = field(default_factory=TreeLimits)
    authors: bool = True
    """Whether what is fetched names its author."""
    trust: CosignTrust | None = None
    """Decides whose signatures count; None: no signature is required."""

    @property
    def shows_every_push(self) -> bool:
        """A tag that was pushed may be no version of the range."""
        return self.reference.digest is not None or self.reference.semver is None

    @property
    def epoch(self) -> str:
        """The epoch of the trusted keys; empty: nothing need be signed."""
        return "" if self.trust is None else self.trust.epoch

    @property
    def lineage(self) -> str:
        """Empty: artifacts have no history, so any revision may follow."""
        return ""

    async def resolve(self) -> Revision:
        """Ask for the digest of a tag; a pinned digest needs no request. Raises Setback."""
        ref = self.reference
        if ref.digest is not None:
            return Revision("", ref.digest)
        async with self._time_limit():
            tag = await self._highest(ref.semver) if ref.semver is not None else ref.tag or DEFAULT_TAG
            try:
                return Revision(tag, await self.registry.digest_of(tag))
            except NotFound as gone:
                raise await self._no_tag(tag, gone) from gone

    async def fetch(
        self, revision: Revision, into: Path, accepted: AcceptedRevision = NOTHING_ACCEPTED
    ) -> Fetched:
        """Write the files of `revision` below the empty folder `into`. Raises Setback."""
        del accepted
        async with self.places.place(self.namespace):
            content = await self._manifest(revision, revision.digest)
            signer = None
            if self.trust is not None:
                async with self._time_limit():
                    signer = await self.trust.signer(self.registry, revision.digest)
            # A signature of the index covers the digest in it.
            if (chosen := chosen_manifest(content)) is not None:
                content = await self._manifest(revision, chosen)
            manifest = read_manifest(content, self.selector.media_type)
            skipped = await self._write(manifest.layer, into)
        metadata, summary = manifest.metadata, manifest.summary
        if not self.authors:
            metadata.pop(AUTHOR, None)
        return with_signer(Fetched(revision, metadata, summary, skipped), signer, named=self.authors)

    @property
    def address(self) -> str:
        """The name that distinguishes it from other sources."""
        return self.display_name

    @property
    def display_name(self) -> str:
        """The repository, and what of it is followed."""
        ref = self.reference
        if ref.digest is not None:
            return f"{self.registry.address}@{ref.digest}"
        return f"{self.registry.address}:{ref.semver or ref.tag or DEFAULT_TAG}"

    @property
    def spec(self) -> dict[str, Any]:
        """Return the part of an equivalent FlagSource."""
        address = self.registry.address
        reference = self.reference.model_dump(by_alias=True, exclude_none=True)
        return {"oci": {"url": str(address), "ref": reference, "insecure": address.insecure}}

    async def _highest(self, semver: str) -> str:
        tags = await self._tags()
        # There may be a hundred thousand.
        tag, others = await asyncio.to_thread(_highest, tags, semver, self.reference.semver_filter)
        if not tag:
            message = f"no tag matches the version range {semver!r}; {others}"
            raise Failed("ReferenceNotFound", f"{self.registry.address}: {message}")
        return tag

    def _time_limit(self) -> contextlib.AbstractAsyncContextManager[None]:
        return (self.deadline or Deadline(TIMEOUT, self.display_name)).limit()

    async def _tags(self) -> list[str]:
        try:
            tags = await self.registry.tags()
        except NotFound as gone:
            raise Failed("RepositoryNotFound", gone.message) from gone
        if not tags:
            raise Waiting("EmptyRepository", f"{self.registry.address}: the repository has no tag yet")
        return tags

    async def _no_tag(self, tag: str, gone: NotFound) -> Failed:
        """Name the existing tags, for the message about a missing one."""
        tags = await self._tags()
        message = f"{self.registry.address}: no tag {tag!r}; {near(tag, tags, 'tags')}"
        return Failed("ReferenceNotFound", message) if tag not in tags else gone

    async def _manifest(self, revision: Revision, digest: str) -> bytes:
        try:
            async with self._time_limit():
                return await self.registry.manifest(digest)
        except NotFound as gone:
            message = f"{revision} is not, or no longer, in the registry: {gone.message}"
            raise Failed("RevisionGone", message) from gone

    async def _write(self, layer: ImageLayer, into: Path) -> tuple[str, ...]:
        if layer.size > DEFAULT_LIMITS.compressed_bytes:
            most = DEFAULT_LIMITS.compressed_bytes
            raise ArchiveRefused(f"the layer has {layer.size} bytes of {most} that it may have")
        async with quarantine(f"the files of {self.registry.address}") as folder:
            with (folder / "layer").open("w+b") as file:
                async with self._time_limit():
                    await self.registry.save_blob(layer.digest, layer.size, file)
                file.seek(0)
                if self.selector.operation == "copy":
                    title = layer.annotations.get(TITLE, "")
                    return await asyncio.to_thread(copy, file, title, layer.size, into, self.limits)
                return await asyncio.to_thread(extract, file, into, self.limits)


def _highest(tags: list[str], semver: str, semver_filter: str | None) -> tuple[str, str]:
    """Return the tag of the highest version, and the tags that were considered, in words. Blocks for seconds
    where there are very many.
    """
    if semver_filter is not None:
        wanted = compile_pattern(semver_filter)
        tags = [tag for tag in tags if wanted.search(tag)]
    return highest(tags, semver) or "", shorten_list(sorted(tags), "tags")


FETCHES_AT_ONCE: Final = 8
"""Each takes some 17 MB at most: the largest file that is read, and buffers."""
_DOCKER_CONFIG: Final = ".dockerconfigjson"
_JUDGES: Final = 1
"""Threads and processes that verify signatures, and as many for namespaces that wait; a process for keyless
ones has 60 MB.
"""
_PUBLIC: Final = "https://tuf-repo-cdn.sigstore.dev"
"""The URL at which the public instance of Sigstore publishes its root; the library has a copy."""


class OciFactory(BackendFactory[OciSpec]):
    """Opens artifacts; all share connections and the tokens that were given to them."""

    def __init__(
        self,
        secret: ReadSecret,
        *,
        authors: bool = True,
        hosts: Hosts | None = None,
        cloud_identity: bool = True,
    ) -> None:
        """`authors`: whether status and Events name them. `hosts`: of registries; None: anywhere.
        `cloud_identity`: whether sources without a Secret may use the controller's own identity.
        """
        self._client = RegistryClient(hosts)
        self._cloud_identity = cloud_identity
        self._own = {provider: IdentityLogins(provider) for provider in CLOUDS}
        self._secrets = Secrets(secret)
        self._places = Places(FETCHES_AT_ONCE, FETCHES_AT_ONCE, resource="registries")
        self._helpers = Helpers((MODULE,))
        self._judges = Places(_JUDGES, _JUDGES, resource="signatures")
        self._authors = authors

    async def open(self, spec: OciSpec, request: FetchRequest) -> OciBackend:
        """The source that `spec` and its Secrets describe. Raises Setback."""
        with stall_on_invalid_text():
            address, namespace = parse_address(spec.url, insecure=spec.insecure), request.key.namespace
            require(spec.cluster_problems())
        if spec.uses_own_identity and not self._cloud_identity:
            raise Stalled("IdentityDenied", NO_IDENTITY.format("oci", spec.provider))
        trust = await self._trust(request)
        tls = Tls()
        secret = await self._secrets.optional(spec.cert_secret_ref, request, "spec.oci.certSecretRef")
        if secret is not None:
            secret.require_host(urlsplit(address.origin).hostname or "")
            tls = secret.tls()
        login, proxy = await self._login(spec, address, request), ""
        secret = await self._secrets.optional(spec.proxy_secret_ref, request, "spec.oci.proxySecretRef")
        if secret is not None:
            proxy = proxy_url(secret, ("http",))
            reader = urlsplit(proxy).hostname or ""
            secret.require_host(reader)
            if login is not None and address.insecure:
                # The proxy reads what is sent in clear.
                login.binding.require(reader)
        own = self._own[spec.provider] if spec.uses_own_identity else None
        access = RegistryAccess(login, own, Route(tls, proxy, namespace))
        deadline = Deadline(request.timeout, str(address))
        return OciBackend(
            Registry(Scope(address, access), self._client),
            spec.ref,
            spec.layer_selector,
            deadline,
            self._places,
            namespace,
            authors=self._authors,
            trust=trust,
        )

    async def close(self) -> None:
        """Close the connections, and end the helpers."""
        await self._client.close()
        for logins in self._own.values():
            await logins.close()
        await self._helpers.close()

    async def _trust(self, request: FetchRequest) -> CosignTrust | None:
        if request.verify is None:
            return None
        if request.verify.match_oidc_identity:
            return await self._keyless(request.verify, request)
        secret = await self._secrets.require(request.verify.keys, request, "spec.verify.secretRef")
        from controller.sources.cosign_keys import read_cosign_keys  # noqa: PLC0415 - for signatures alone

        keys = read_cosign_keys(secret)
        advice = in_cluster(request.key, secret.name, (key.name for key in keys))
        judge = KeyJudge(keys, advice.add_key, self._judges, request.key.namespace)
        return CosignTrust(judge, epoch({"provider": "cosign"}, secret.content))

    async def _keyless(self, verify: VerifySpec, request: FetchRequest) -> CosignTrust:
        identities = tuple(
            SignerIdentity(identity.issuer, identity.subject) for identity in verify.match_oidc_identity
        )
        if verify.trusted_root_secret_ref is None:
            name, root = "", await asyncio.to_thread(public_root)
        else:
            field = "spec.verify.trustedRootSecretRef"
            secret = await self._secrets.require(verify.trusted_root_secret_ref, request, field)
            name, root = secret.name, secret.require(TRUSTED_ROOT, "for keyless signatures")
        judge = IdentityJudge(identities, root, name, self._helpers, self._judges, request.key.namespace)
        policy = {
            "provider": "keyless",
            "identities": [(identity.issuer, identity.subject) for identity in identities],
        }
        return CosignTrust(judge, epoch(policy, {TRUSTED_ROOT: root.encode()}))

    async def _login(
        self, spec: OciSpec, address: ArtifactAddress, request: FetchRequest
    ) -> RegistryLogin | None:
        if spec.secret_ref is None:
            return None
        secret = await self._secrets.require(spec.secret_ref, request, "spec.oci.secretRef")
        secret.require_host(urlsplit(address.origin).hostname or "")
        secret.require(_DOCKER_CONFIG, "for a registry")
        login = login_from(f"Secret {secret.name}", secret.content[_DOCKER_CONFIG], address)
        if login is None:
            raise secret.invalid(f"{_DOCKER_CONFIG!r} has no login for {address.host}")
        return replace(login, binding=secret.binding)


@cache
def public_root() -> str:
    """Return the root in Sigstore's library, whose releases update it: no network is needed."""
    copy = files("sigstore").joinpath("_store", quote(_PUBLIC, safe=""), TRUSTED_ROOT)
    return copy.read_text(encoding="utf-8")
