"""A FlagSource's `spec.git` and Secrets as a source that can be read."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.api.addresses import Location, Transport, parse_location
from controller.api.fields import require
from controller.api.source_spec import DEFAULT_BRANCH, GitSpec, VerifyRule
from controller.runtime.helper import TaskLimits
from controller.runtime.helpers import Helpers
from controller.runtime.http_client import HttpClient
from controller.runtime.limits import UNLIMITED, NamespaceLimits, Places
from controller.runtime.secret_texts import UNBOUND
from controller.runtime.setbacks import Stalled, stall_on_invalid_text
from controller.runtime.temporary import sweep_temporary
from controller.sources.commit_verification import Group, SignerRule
from controller.sources.deadline import Deadline, LimitedTasks
from controller.sources.git_backend import GitBackend
from controller.sources.git_commits import SignaturePolicy
from controller.sources.git_credentials import Credentials, credentials_from, with_proxy
from controller.sources.git_listing import LsRemoteCache
from controller.sources.git_references import Reference
from controller.sources.mirror import MirrorsInUse, SourceShare
from controller.sources.secrets import Secrets, in_cluster
from controller.sources.signing_keys import epoch, read_keys
from controller.sources.submodules import SubmoduleLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from controller.api.meta import ObjectKey
    from controller.runtime.hosts import Hosts
    from controller.sources.backend import FetchRequest
    from controller.sources.secrets import ReadSecret

GIT_AT_ONCE: Final = 16
"""Each takes some 10 MB while it runs. As many again are for namespaces that have none."""
ADVICE: Final = {
    "AuthenticationFailed": "check the Secret that spec.git.secretRef names",
    "HostKeyRefused": "the known_hosts of the Secret has another key, or none; if the host is the right one, "
    "put its key there",
    "CertificateRefused": "if the server is the right one, put its CA's certificate into the Secret, "
    "as ca.crt",
    "Redirected": "redirects are not followed; write the URL that it redirects to into spec.git.url "
    "(GitLab: with .git at its end)",
    "RepositoryNotFound": "check spec.git.url, and that the user of the Secret may read it",
}
_HELPERS: Final = 2
_MODULE: Final = "controller.sources.git_commits"


class GitFactory:
    """Opens Git repositories; those of one remote and identity share listings and mirrors."""

    def __init__(
        self,
        secret: ReadSecret,
        mirror_root: Path,
        *,
        allow_local: bool = False,
        authors: bool = True,
        hosts: Hosts | None = None,
        limits: NamespaceLimits = UNLIMITED,
    ) -> None:
        """`allow_local`: `file://` URLs are read with our rights. `authors`: status and Events name them."""
        self.places = Places(GIT_AT_ONCE, GIT_AT_ONCE, limits.git_processes, resource="git")
        self._client = HttpClient(hosts, system_proxies=True)
        self.listings = LsRemoteCache(self.places, self._client)
        self.helpers = Helpers((_MODULE,))
        self._reading = Places(_HELPERS, resource="commits")
        self._secrets = Secrets(secret)
        self._allow_local = allow_local
        self._authors = authors
        self.task = TaskLimits(cpu_seconds=20.0)
        """What verifying or reading one commit may take."""
        self.submodule_limits = SubmoduleLimits()
        self._hosts = hosts
        self._mirrors = MirrorsInUse(mirror_root, limits.mirror_bytes)
        # A process that was killed may have left keys behind.
        sweep_temporary()

    async def open(self, spec: GitSpec, request: FetchRequest) -> GitBackend:
        """The source that `spec` and its Secrets describe. Raises Setback."""
        with stall_on_invalid_text():
            require(spec.cluster_problems())
            location, namespace = parse_location(spec.url), request.key.namespace
        if self._hosts is not None:
            self._hosts.require_scheme(location.transport)
        if location.path is not None and not self._allow_local:
            message = "file:// URLs are not allowed in a cluster; write https://, http:// or ssh://"
            raise Stalled("URLInvalid", message)
        deadline = Deadline(request.timeout, location.shown)
        source = GitBackend(
            location,
            _reference(spec),
            # A mirror per namespace: each one's bytes count against its own quota.
            self._mirrors.root / namespace,
            credentials=await self._credentials(spec, request, location),
            deadline=deadline,
            sparse=spec.sparse_checkout,
            submodules=self.submodule_limits if spec.recurse_submodules else None,
            tasks=LimitedTasks(
                self.helpers, self._reading, namespace, deadline, self.task, "GitOperationFailed"
            ),
            hosts=self._hosts,
            authors=self._authors,
            share=SourceShare(self.listings, self._mirrors, request),
            advice=ADVICE,
            policy=await self._policy(spec, request),
        )
        mirror = source.mirror.path if location.path is None else None
        self._mirrors.open(request.key, mirror, submodules=source.submodules is not None)
        return source

    @property
    def usage(self) -> dict[str, Callable[[], Mapping[str, int]]]:
        """What namespaces have now, by the field of `NamespaceLimits` that limits it. Any thread may ask."""
        mirror_bytes = partial(self._mirrors.quota.usage, self._mirrors.root)
        return {"mirror_bytes": mirror_bytes, "git_processes": self.places.usage}

    def forget(self, key: ObjectKey) -> None:
        """The source is gone; so are its mirrors, unless another source uses them, too."""
        self._mirrors.replace(key, frozenset())
        self.listings.forget()

    async def close(self) -> None:
        """Cancel requests to remotes, and end the helpers."""
        await self.listings.close()
        await self._client.close()
        await self.helpers.close()

    async def make_room(self) -> bool:
        """Remove the mirrors that none of our sources uses."""
        return await self._mirrors.make_room()

    async def sweep(self, now: datetime) -> None:
        """Remove mirrors that none of our sources used for a week."""
        await self._mirrors.sweep(now)

    async def _credentials(
        self, git: GitSpec, request: FetchRequest, location: Location
    ) -> Credentials | None:
        credentials, binding, transport = None, UNBOUND, location.transport
        if git.secret_ref is not None:
            secret = await self._secrets.require(git.secret_ref, request, "spec.git.secretRef")
            binding = secret.binding
            binding.require(location.server[0])
            credentials = credentials_from(secret, transport)
        if git.proxy_secret_ref is not None:
            secret = await self._secrets.require(git.proxy_secret_ref, request, "spec.git.proxySecretRef")
            credentials = with_proxy(credentials, secret, transport)
            proxy = urlsplit(credentials.proxy).hostname or ""
            secret.require_host(proxy)
            if transport is Transport.HTTP:
                # A proxy can read plain HTTP.
                binding.require(proxy)
        return credentials

    async def _policy(self, spec: GitSpec, request: FetchRequest) -> SignaturePolicy | None:
        if request.verify is None:
            return SignaturePolicy(in_cluster(request.key)) if spec.history == "FastForwardOnly" else None
        mode = request.verify.mode or "HEAD"
        secret = await self._secrets.require(request.verify.keys, request, "spec.verify.secretRef")
        keys = read_keys(secret)
        policy = {"mode": mode, "rules": [rule.model_dump() for rule in request.verify.rules]}
        advice = in_cluster(request.key, secret.name, keys.names)
        rules = tuple(map(_rule, request.verify.rules))
        return SignaturePolicy(advice, mode, keys, epoch(policy, secret.content), rules)


def _rule(given: VerifyRule) -> SignerRule:
    groups = tuple(Group(group.signers, group.count) for group in given.any_of)
    return SignerRule(given.paths, groups, merges=given.merges_count)


def _reference(git: GitSpec) -> Reference:
    ref = git.ref
    given = Reference(ref.branch, ref.tag, ref.semver, ref.name, ref.commit)
    return given if given != Reference() else Reference(branch=DEFAULT_BRANCH)
