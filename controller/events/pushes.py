"""Pushes that a webhook reports, and the sources that they concern. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from controller.api.addresses import DEFAULT_TAG, DOCKER_HUB
from controller.api.fields import InvalidSpecError, read
from controller.api.references import HEADS, TAGS
from controller.api.source_spec import DEFAULT_BRANCH, GitReference, GitSpec, OciReference, OciSpec

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Update:
    """What a push changed of a repository or registry."""

    reference: str | None = None
    """A full name such as `refs/heads/main`, or a registry's tag; None: any may have changed."""
    commit: str | None = None
    """Digits of the commit or manifest, hexadecimal; None where none was sent, and after a deletion."""


@dataclass(frozen=True, slots=True)
class Push:
    """A push."""

    repositories: tuple[str, ...]
    """The addresses of the repository, registry or bucket in all spellings of the payload."""
    updates: tuple[Update, ...]
    """At least one."""
    identity: str
    """Equal for the same delivery sent again, by any sender."""
    delivery: str = ""
    """ID of the delivery in the sender's log; empty without one."""


def repositories(push: Push) -> set[str]:
    """Return what was pushed to in the normal form of each address in the push."""
    return {place for url in push.repositories if (place := normalise_url(url)) is not None}


def places_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The normal forms by which pushes name what the FlagSource with this spec follows; empty for none."""
    kind = next((kind for kind in ("git", "oci", "bucket") if isinstance(spec.get(kind), dict)), "")
    fields = spec.get(kind) or {}
    if kind == "bucket":
        scheme = _STORES.get(fields.get("provider") or "generic")
        url = f"{scheme}://{fields.get('bucketName')}"
    else:
        url = str(fields.get("url"))
    place = normalise_url(url) if kind else None
    if place is None:
        return ()
    return (place, _end_of(place)) if kind == "git" else (place,)


def followed_update(spec: Mapping[str, Any], push: Push) -> Update | None:
    """The newest update of the push that the FlagSource with this spec follows, or None."""
    try:
        if "git" in spec:
            git = read(GitSpec, spec["git"])
            followed = [update for update in push.updates if follows(git.ref, update)]
        elif "oci" in spec:
            artifact = read(OciSpec, spec["oci"])
            followed = [update for update in push.updates if follows_tag(artifact.ref, update)]
        else:
            followed = [*push.updates]
    except InvalidSpecError:
        # The error is in its own status.
        return None
    return followed[-1] if followed else None


def follows(wanted: GitReference, update: Update) -> bool:
    """Whether a source with this reference follows the pushed one: its most exact field decides."""
    pushed = update.reference
    if pushed is None:
        return True
    if wanted.commit is not None:
        return wanted.commit == update.commit
    if wanted.name is not None:
        return wanted.name == pushed
    if wanted.tag is not None:
        return pushed == f"{TAGS}{wanted.tag}"
    if wanted.semver is not None:
        return pushed.startswith(TAGS)
    return pushed == f"{HEADS}{wanted.branch or DEFAULT_BRANCH}"


def follows_tag(wanted: OciReference, update: Update) -> bool:
    """Whether a source with this reference follows the pushed tag; a range follows every tag."""
    if wanted.digest is not None:
        # What a digest names never changes; it may have been missing until now.
        return update.commit is None or wanted.digest.endswith(update.commit)
    return (
        update.reference is None
        or wanted.semver is not None
        or update.reference == (wanted.tag or DEFAULT_TAG)
    )


_SCP: Final = re.compile(r"(?:[^@/\s]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\s]+):(?P<path>[^\s]+)")
_STORES: Final = {"generic": "s3", "aws": "s3", "gcp": "gs", "azure": "az"}
_ARTIFACT: Final = "oci"
_HTTPS_HOSTS: Final = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}
"""Hosts where these servers take ssh on port 443."""
ANY_HOST: Final = "*"
"""In place of the host of an address that a payload names by its end alone."""


def normalise_url(url: str) -> str | None:
    """Return `host/path`, the same for all addresses of a repository; `oci://host/path` of an artifact,
    `s3://bucket`, `gs://bucket` or `az://container` of a bucket; None for an invalid address.

    Scheme, user, port, case and `.git` are ignored: a push may contain the https address, and a source the
    ssh one. Waking a source needlessly costs one poll; missing one costs an interval.
    """
    scheme = ""
    try:
        if "://" in url:
            parts = urlsplit(url)
            scheme, host, path = parts.scheme, parts.hostname or "", parts.path if parts.scheme else ""
        elif (scp := _SCP.fullmatch(url)) is not None:
            host, path = scp["host"].strip("[]"), scp["path"]
        else:
            return None
    except ValueError:
        return None
    host = host.lower().rstrip(".")
    if scheme in _STORES.values():
        return f"{scheme}://{host}" if host else None
    path = unquote(path).strip("/").casefold().removesuffix(".git").rstrip("/")
    if not path:
        return None
    if scheme == _ARTIFACT:
        return f"{_ARTIFACT}://{'docker.io' if host in DOCKER_HUB else host}/{path}"
    return _azure_place(host, path) or f"{_HTTPS_HOSTS.get(host, host)}/{path}"


def _azure_place(host: str, path: str) -> str | None:
    """The one form of a repository's addresses at Azure DevOps; None for another server."""
    parts = path.split("/")
    if host in {"ssh.dev.azure.com", "vs-ssh.visualstudio.com"} and parts[0] == "v3" and len(parts) == 4:
        organisation, names = parts[1], parts[2:]
    elif host == "dev.azure.com" and "_git" in parts[1:]:
        organisation, names = parts[0], parts[1:]
    elif host.endswith(".visualstudio.com") and "_git" in parts:
        organisation, names = host.partition(".")[0], parts
    else:
        return None
    names = [name for name in names if name not in {"_git", "defaultcollection"}]
    # The repository that has its project's name may be named by it alone.
    return "/".join(("dev.azure.com", organisation, names[0], "_git", names[-1])) if names else None


def _end_of(place: str) -> str:
    """What is left of a repository's place for a payload that names project and repository alone."""
    return "/".join((ANY_HOST, *place.split("/")[-2:]))
