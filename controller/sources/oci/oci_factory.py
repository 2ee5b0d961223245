"""A FlagSource's `spec.oci` and Secrets as a source that can be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from controller.api.parsing.oci_address import parse_address
from controller.api.sources.oci_source import OciSpec
from controller.runtime.network.http_client import Route
from controller.runtime.process.helpers import Helpers
from controller.runtime.reconciling.setbacks import stall_on_invalid_text
from controller.runtime.tenancy.places import Places
from controller.runtime.user_text.secret_texts import Tls, proxy_url
from controller.sources.backend import BackendFactory, FetchRequest
from controller.sources.deadline import Deadline
from controller.sources.oci.oci_backend import OciBackend
from controller.sources.oci.oci_credentials import RegistryAccess, RegistryLogin, login_from
from controller.sources.oci.registry import Registry
from controller.sources.oci.registry_client import RegistryClient, Scope
from controller.sources.oci.signatures import TRUSTED_ROOT, CosignTrust, IdentityJudge, KeyJudge
from controller.sources.secrets import Secrets
from controller.sources.trust_advice import in_cluster
from controller.sources.verification.cosign import read_cosign_keys
from controller.sources.verification.keyless import MODULE, SignerIdentity
from controller.sources.verification.keys import epoch

if TYPE_CHECKING:
    from controller.api.parsing.oci_address import Address
    from controller.api.sources.verification import VerifySpec
    from controller.runtime.tenancy.hosts import Hosts
    from controller.sources.secrets import ReadSecret

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

    def __init__(self, secret: ReadSecret, *, authors: bool = True, hosts: Hosts | None = None) -> None:
        """`authors`: whether status and Events name them. `hosts`: of registries; None: anywhere."""
        self._client = RegistryClient(hosts)
        self._secrets = Secrets(secret)
        self._places = Places(FETCHES_AT_ONCE, FETCHES_AT_ONCE, resource="registries")
        self._helpers = Helpers((MODULE,))
        self._judges = Places(_JUDGES, _JUDGES, resource="signatures")
        self._authors = authors

    async def open(self, spec: OciSpec, request: FetchRequest) -> OciBackend:
        """The source that `spec` and its Secrets describe. Raises Setback."""
        with stall_on_invalid_text():
            address, namespace = parse_address(spec.url, insecure=spec.insecure), request.key.namespace
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
        access = RegistryAccess(login, Route(tls, proxy, namespace))
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
        await self._helpers.close()

    async def _trust(self, request: FetchRequest) -> CosignTrust | None:
        if request.verify is None:
            return None
        if request.verify.match_oidc_identity:
            return await self._keyless(request.verify, request)
        secret = await self._secrets.require(request.verify.keys, request, "spec.verify.secretRef")
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

    async def _login(self, spec: OciSpec, address: Address, request: FetchRequest) -> RegistryLogin | None:
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
