"""A FlagSource's `spec.git` and Secrets as a source that can be read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.api.flagsource import DEFAULT_BRANCH
from controller.api.objects.fields import require
from controller.api.parsing.git_url import Transport, parse_location
from controller.runtime.process.helper import TaskLimits
from controller.runtime.process.helpers import Helpers
from controller.runtime.process.temporary import sweep_temporary
from controller.runtime.reconciling.setbacks import Stalled, stalling
from controller.runtime.tenancy.limits import UNLIMITED
from controller.runtime.tenancy.places import Places
from controller.runtime.tenancy.secret_hosts import UNBOUND
from controller.sources.git.credentials import credentials_from, with_proxy
from controller.sources.git.http.connections import Connections
from controller.sources.git.http.pack_fetch import PackFetch
from controller.sources.git.listing.http_listing import HttpListing
from controller.sources.git.listing.ls_remote_cache import LsRemoteCache
from controller.sources.git.listing.reference import Reference
from controller.sources.git.provider import GitProvider
from controller.sources.git.reading.mirror import remove_mirror, sweep_mirrors
from controller.sources.git.reading.mirror_quota import MirrorQuota
from controller.sources.git.reading.tree import read_tree
from controller.sources.git.signatures.judging import Group, Rule, judge
from controller.sources.git.signatures.trust import Trust
from controller.sources.looking.deadline import Deadline, LimitedTasks
from controller.sources.secrets import Secrets
from controller.sources.trust_advice import in_cluster
from controller.sources.verification.keys import epoch, read_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from controller.api.flagsource import GitSpec
    from controller.api.objects.meta import ObjectKey
    from controller.api.parsing.git_url import Location
    from controller.api.verification import VerifyRule
    from controller.runtime.tenancy.hosts import Hosts
    from controller.runtime.tenancy.limits import Limits
    from controller.sources.git.credentials import Credentials
    from controller.sources.git.listing.reference import References
    from controller.sources.git.programs.program import GitProgram
    from controller.sources.git.signatures.judging import Question
    from controller.sources.provider import Fetched, Look, Revision, TreeLimits
    from controller.sources.secrets import ReadSecret
    from controller.sources.verification import Signer

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
_MODULE: Final = "controller.sources.git.reading.tree"
_TASK: Final = TaskLimits(cpu_seconds=20.0)


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
        limits: Limits = UNLIMITED,
    ) -> None:
        """`allow_local`: `file://` URLs are read with our rights. `authors`: status and Events name them."""
        self.mirror_root = mirror_root
        self.places = Places(GIT_AT_ONCE, GIT_AT_ONCE, lambda namespace: limits.of(namespace).git_processes)
        self._connections = Connections(hosts)
        self.listings = LsRemoteCache(self.places, HttpListing(self._connections))
        self.helpers = Helpers(_HELPERS, (_MODULE,))
        self._reading = Places(_HELPERS)
        self._secrets = Secrets(secret)
        self._allow_local = allow_local
        self._authors = authors
        self._hosts = hosts
        self._mirrors: dict[ObjectKey, frozenset[Path]] = {}
        """The mirrors that each source uses, those of submodules among them."""
        self._removals: set[asyncio.Task[None]] = set()
        self._quota = MirrorQuota(lambda namespace: limits.of(namespace).mirror_bytes, self._removals)
        # A process that was killed may have left keys behind.
        sweep_temporary()

    async def open(self, spec: GitSpec, look: Look) -> GitProvider:
        """The source that `spec` and its Secrets describe. Raises Setback."""
        with stalling():
            require(spec.cluster_problems())
            location, namespace = parse_location(spec.url), look.key.namespace
        if self._hosts is not None:
            self._hosts.require_scheme(location.transport)
        if location.path is not None and not self._allow_local:
            message = "file:// URLs are not allowed in a cluster; write https://, http:// or ssh://"
            raise Stalled("URLInvalid", message)
        deadline = Deadline(look.timeout, location.shown)
        tasks = LimitedTasks(self.helpers, self._reading, namespace, deadline, _TASK, "GitOperationFailed")
        reader = LimitedReader(tasks)
        packs = PackFetch(self._connections)

        def listed(program: GitProgram, options: tuple[str, ...]) -> Awaitable[References]:
            return packs.listed(self.listings.references(program, options, look.freshness, namespace))

        source = GitProvider(
            location,
            _reference(spec),
            # A mirror per namespace: each one's bytes count against its own quota.
            self.mirror_root / namespace,
            credentials=await self._credentials(spec, look, location),
            deadline=deadline,
            sparse=spec.sparse_checkout,
            submodules=spec.recurse_submodules,
            listed=listed,
            packs=packs,
            place=partial(self.places.place, namespace),
            reader=reader,
            quota=self._quota,
            uses=partial(self._read, look.key),
            advice=ADVICE,
            authors=self._authors,
            hosts=self._hosts,
            trust=await self._trust(spec, look, reader),
        )
        mirror = source.mirror.path
        if not (source.submodules and mirror in self._mirrors.get(look.key, ())):
            self._uses(look.key, frozenset({mirror} if location.path is None else ()))
        return source

    @property
    def used(self) -> dict[str, Callable[[], Mapping[str, int]]]:
        """What namespaces have now, by the field of `NamespaceLimits` that limits it. Any thread may ask."""
        mirror_bytes = partial(self._quota.used, self.mirror_root)
        return {"mirror_bytes": mirror_bytes, "git_processes": self.places.taken}

    def forget(self, key: ObjectKey) -> None:
        """The source is gone; so are its mirrors, unless another source uses them, too."""
        self._uses(key, frozenset())
        self.listings.forget()

    async def close(self) -> None:
        """Cancel requests to remotes, and end the helpers."""
        await self.listings.close()
        await self.helpers.close()

    async def sweep(self, now: datetime) -> None:
        """Remove mirrors that none of our sources used for a week."""
        used = self._all_mirrors
        await asyncio.to_thread(sweep_mirrors, self.mirror_root, used, now.timestamp())

    async def _credentials(self, git: GitSpec, look: Look, location: Location) -> Credentials | None:
        credentials, binding, transport = None, UNBOUND, location.transport
        if git.secret_ref is not None:
            secret = await self._secrets.required(git.secret_ref, look, "spec.git.secretRef")
            binding = secret.binding
            binding.require(location.server[0])
            credentials = credentials_from(secret, transport)
        if git.proxy_secret_ref is not None:
            secret = await self._secrets.required(git.proxy_secret_ref, look, "spec.git.proxySecretRef")
            credentials = with_proxy(credentials, secret, transport)
            proxy = urlsplit(credentials.proxy).hostname or ""
            secret.require_host(proxy)
            if transport is Transport.HTTP:
                # A proxy can read plain HTTP.
                binding.require(proxy)
        return credentials

    async def _trust(self, spec: GitSpec, look: Look, reader: LimitedReader) -> Trust | None:
        if look.verify is None:
            return Trust(reader.judge, in_cluster(look.key)) if spec.history == "FastForwardOnly" else None
        mode = look.verify.mode or "HEAD"
        secret = await self._secrets.required(look.verify.keys, look, "spec.verify.secretRef")
        keys = read_keys(secret)
        policy = {"mode": mode, "rules": [each.model_dump() for each in look.verify.rules]}
        advice = in_cluster(look.key, secret.name, keys.names)
        rules = tuple(map(_rule, look.verify.rules))
        return Trust(reader.judge, advice, mode, keys, epoch(policy, secret.content), rules)

    @property
    def _all_mirrors(self) -> frozenset[Path]:
        return frozenset(each for mirrors in self._mirrors.values() for each in mirrors)

    def _read(self, key: ObjectKey, mirrors: frozenset[Path], alone: bool) -> None:
        """As `GitProvider.uses`. A source that went meanwhile uses none."""
        before = self._mirrors.get(key, frozenset())
        if before:
            self._uses(key, mirrors if alone else before | mirrors)

    def _uses(self, key: ObjectKey, mirrors: frozenset[Path]) -> None:
        before = self._mirrors.pop(key, frozenset())
        if mirrors:
            self._mirrors[key] = mirrors
        if before <= mirrors:
            return
        for mirror in before - self._all_mirrors:
            self._quota.forget(mirror)
            # Credentials that are renewed every hour would leave a mirror every hour.
            removal = asyncio.create_task(asyncio.to_thread(remove_mirror, mirror))
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)


def _rule(given: VerifyRule) -> Rule:
    groups = tuple(Group(each.signers, each.count) for each in given.any_of)
    return Rule(given.paths, groups, merges=given.merges_count)


def _reference(git: GitSpec) -> Reference:
    ref = git.ref
    given = Reference(ref.branch, ref.tag, ref.semver, ref.name, ref.commit)
    return given if given != Reference() else Reference(branch=DEFAULT_BRANCH)


@dataclass(frozen=True, slots=True)
class LimitedReader:
    """A `TreeReader` for one look at one source."""

    tasks: LimitedTasks

    async def __call__(
        self, path: Path, revision: Revision, into: Path, limits: TreeLimits, paths: tuple[str, ...], /
    ) -> Fetched:
        """As `write_commit`. Raises Stalled (LimitExceeded) for what takes too much to be read."""
        return await self.tasks.run(f"reading {revision}", read_tree, path, revision, into, limits, paths)

    async def judge(self, path: Path, question: Question) -> Signer | None:
        """As `judging.judge`. Raises Stalled (LimitExceeded) for what takes too much to be judged."""
        return await self.tasks.run(f"verifying commit {question.commit}", judge, path, question)
