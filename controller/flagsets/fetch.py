"""Artifacts of any source, each proven by its digest, and the flags in one."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from yarl import URL

from controller.api import flagsource
from controller.api.artifact_status import ArtifactStatus, artifact_of
from controller.api.kinds import status_of
from controller.api.meta import ObjectKey
from controller.artifacts.archive import DEFAULT_LIMITS, take_skipped, unpack
from controller.delivery.delivered import INVALID, RemoteAnswer, RemoteRequest
from controller.delivery.problem_text import first_problem
from controller.flagsets.layers import LayersRefused, read_layers
from controller.runtime.hosts import Hosts
from controller.runtime.http_client import Cause, HttpClient, RequestError, Route, read_all
from controller.runtime.setbacks import Failed, Stalled, Waiting, stall_on_invalid_text
from evaluator.flags.layer import as_read
from evaluator.flags.merge import Parsed, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from controller.flagsets.dependencies import Artifacts
    from controller.runtime.cache import Cache


_ROUTE: Final = Route(seconds=60.0)
_KNOWN: Final = {"sha256": hashlib.sha256, "sha384": hashlib.sha384, "sha512": hashlib.sha512}
_GONE: Final = 30.0
"""Seconds: a source that lost its storage stores the same artifact again with no change of its status."""
_URL: Final = 300
IN_CLUSTER: Final = (".svc", ".svc.cluster.local")
"""Hosts that artifacts come from by default: Services."""
JUDGED: Final = Hosts(kind="artifact")


@dataclass(frozen=True, slots=True)
class ArtifactReader:
    """Reads the artifact in a source's status. `local` finds our own by their path, and may raise Setback."""

    local: Callable[[str], bytes | None]
    hosts: tuple[str, ...] = IN_CLUSTER
    """Hosts of downloads, `name` or `name:port`; one that begins with a dot matches all names with that end.
    """
    most_bytes: int = DEFAULT_LIMITS.compressed_bytes
    own: Callable[[], Collection[str]] = tuple
    """Our own artifact servers, which ask for a token: each `name:port` or `name` (port 80)."""
    token: Callable[[], str | None] = lambda: None
    judged: Hosts = JUDGED
    """Which addresses `hosts` may have, as authors of Services choose them; `own` is not judged."""

    async def read(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        """Return the archive. Raises Waiting if it is gone, as its source makes a new one; else Failed."""
        content = None
        # A writer of an artifact's status may name any path: only the namespace's own are looked up.
        if artifact.path.startswith(f"flagsource/{namespace}/"):
            content = await asyncio.to_thread(self.local, artifact.path)
        if content is None:
            content = await self._download(namespace, artifact)
        algorithm, _, wanted = artifact.digest.partition(":")
        if algorithm not in _KNOWN:
            raise Stalled(
                "ArtifactFailed",
                f"the digest algorithm {algorithm} is not supported; sha256, sha384 and sha512 are",
            )
        is_it = await asyncio.to_thread(lambda: _KNOWN[algorithm](content).hexdigest())
        if is_it != wanted:
            # Without the actual digest: a writer of the status could have any address in the cluster read,
            # and its digest shown.
            message = f"{_printable_url(artifact.url)} has another digest than status.artifact of its source"
            raise Failed("ArtifactFailed", message)
        return content

    async def _download(self, namespace: str, artifact: ArtifactStatus) -> bytes:
        where = _printable_url(artifact.url)
        try:
            # The same object is judged and asked: two readers of one text may take it for two hosts.
            url = URL(artifact.url)
            self.require_allowed(url, where)
            own, headers = self._is_own(url), self.headers(namespace, url)
        except ValueError as error:
            raise Failed("ArtifactFailed", f"{where}: it is not a URL") from error
        client = HttpClient(None if own else self.judged)
        try:
            async with client.request("GET", url.with_user(None), headers=headers, route=_ROUTE) as answer:
                if answer.status == 404:
                    raise Waiting(
                        "ArtifactFailed",
                        f"{where} does not exist any more; waiting for the source to publish a new artifact",
                        delay=_GONE,
                    )
                if answer.status != 200:
                    raise Failed("ArtifactFailed", f"{where} answered with status {answer.status}")
                return await read_all(answer, self.most_bytes)
        except RequestError as error:
            if error.cause is Cause.TOO_LONG:
                message = f"{where} is larger than {self.most_bytes} bytes"
                raise Stalled("ArtifactTooLarge", message) from error
            raise Failed("ArtifactFailed", f"{where}: {error.message}") from error
        finally:
            await client.close()

    def headers(self, namespace: str, url: URL) -> dict[str, str]:
        """Return our token, for our own server alone, and there for the namespace's own archives; for others
        the login in the URL.
        """
        token = self.token() if self._is_own(url) else None
        if token and url.raw_path.startswith(f"/flagsource/{namespace}/"):
            return {"Authorization": f"Bearer {token}"}
        if url.user is None:
            return {}
        login = b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
        return {"Authorization": f"Basic {login}"}

    def _is_own(self, url: URL) -> bool:
        """Whether it names an artifact server of ours. Raises ValueError where one of `own` is no host."""
        return any(_origin(url) == _origin(URL(f"http://{own}")) for own in self.own())

    def require_allowed(self, url: URL, where: str) -> None:
        """Raise Stalled (AccessDenied) for other hosts than `hosts`: otherwise a writer of a source's status
        could send requests to any host, and learn of it.
        """
        name = _name(url.host or "")
        if self._is_own(url):
            return
        named = {name, f"{name}:{url.port}"}
        for allowed in self.hosts if name and url.scheme in ("http", "https") else ():
            host = _name(allowed)
            if host in named or (host.startswith(".") and name.endswith(host)):
                return
        raise Stalled(
            "AccessDenied",
            f"{where} is not on a host that artifacts may come from; "
            "the controller's setting FLAGSTAFF_ARTIFACT_HOSTS names them",
        )


def _origin(url: URL) -> tuple[str, str, int | None]:
    """What two URLs of one server have in common, a port that is not written with the others."""
    return url.scheme, _name(url.host or ""), url.port


def _name(host: str) -> str:
    """A host, or host:port, as all its spellings are compared."""
    return host.rstrip(".").lower().replace(".:", ":")


def _printable_url(url: str) -> str:
    """A URL without what may be secret in it."""
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
    except ValueError:
        return "its URL, which is malformed,"
    return f"{parts.scheme}://{host}{parts.path}"[:_URL]


_SOURCE: Final = "SourceFailed"


@dataclass(frozen=True, slots=True)
class SourceFlags:
    """Reads layers of artifacts."""

    objects: Cache
    artifacts: Artifacts

    async def fetch(self, request: RemoteRequest) -> RemoteAnswer | None:
        """See RemoteSource. A source that fails, at the version in force, is a setback."""
        name = request.spec.flag_source or ""
        source = self.objects.get(ObjectKey(flagsource.KIND, request.key.namespace, name))
        if source is None:
            raise Failed(_SOURCE, f"FlagSource {name} does not exist; create it, or correct flagSource")
        status = status_of(source)
        with stall_on_invalid_text():
            artifact = artifact_of(source)
        if artifact is None:
            raise Failed(_SOURCE, f"FlagSource {name} has no artifact yet{status.why}")
        if artifact.revision == request.version:
            if status.failure:
                raise Failed(_SOURCE, f"FlagSource {name} is not ready{status.why}")
            return None
        archive = await self.artifacts.read(request.key.namespace, artifact)
        read = partial(_parse, archive, request.spec.paths)
        return RemoteAnswer(read, artifact.revision, large=True)


def _parse(archive: bytes, paths: tuple[str, ...]) -> Parsed:
    """Merge the layers. Raises ArchiveRefused, Failed."""
    files = unpack(archive)
    skipped = take_skipped(files)
    try:
        return merge(read_layers(files, paths, skipped, as_read))
    except LayersRefused as refused:
        raise Failed(INVALID, f"{first_problem(refused.problems)}; correct paths, or the source") from None
