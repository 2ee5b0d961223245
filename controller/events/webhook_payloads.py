"""Deliveries of webhooks: who sent them, and what was pushed. Pure.

Content that is not authenticated is not parsed, and signatures are compared in constant time.

GitHub: https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
GitLab: https://docs.gitlab.com/user/project/integrations/webhooks/
Gitea: https://docs.gitea.com/usage/repository/webhooks
Bitbucket: https://support.atlassian.com/bitbucket-cloud/docs/event-payloads/ and, for Data Center,
https://confluence.atlassian.com/bitbucketserver/event-payload-938025882.html
Azure DevOps: https://learn.microsoft.com/azure/devops/service-hooks/events
Harbor: https://goharbor.io/docs/main/working-with-projects/project-configuration/configure-webhooks/
Quay: https://docs.quay.io/guides/notifications.html
Docker Hub: https://docs.docker.com/docker-hub/webhooks/
generic-hmac: as Flux's receiver of that name, without SHA-1.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from controller.api.addresses import SCHEME, TAG
from controller.api.references import HEADS, TAGS
from controller.events.pushes import ANY_HOST, Push, Update
from evaluator.http.messages import Headers, header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from controller.api.flagreceiver import Sender


MOST_BYTES: Final = 3 * 1024 * 1024
"""Most bytes of a body, as of Flux's receiver; GitHub's pushes are far smaller."""
_MOST_UPDATES: Final = 100
"""Most references of one push; of more, any may have changed."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ANY: Final = (Update(),)


@dataclass(frozen=True, slots=True)
class Quiet:
    """A valid delivery that concerns no source."""

    message: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error answer to an invalid delivery."""

    status: int
    message: str


UNSIGNED: Final = Refusal(
    401, "the signature is missing or wrong: the sender's secret is not the token of the Secret"
)


def read_delivery(
    sender: Sender, headers: Headers, body: bytes, tokens: Iterable[bytes], events: Iterable[str] = ()
) -> Push | Quiet | Refusal:
    """Check and parse one request. `headers`: names in lower case; `events`: accepted ones, empty: pushes.

    Never raises; an unsigned body is not parsed.
    """
    if len(body) > MOST_BYTES:
        return Refusal(413, f"the delivery has more than {MOST_BYTES} bytes")
    if not is_authentic(sender, headers, body, tokens):
        return UNSIGNED
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        payload = None
    if not isinstance(payload, dict):
        message = "the body is not a JSON object; set the webhook's content type to application/json"
        return Refusal(400, message)
    if sender == "generic-hmac":
        return _generic(payload, body)
    event = _event(sender, headers, payload)
    if event not in _PINGS and event in ({_normal(name) for name in events} or _PUSHES[sender]):
        return _push(sender, headers, payload, body)
    return Quiet("pong" if event in _PINGS else "ignored: spec.events does not list this event")


def is_authentic(sender: Sender, headers: Headers, body: bytes, tokens: Iterable[bytes]) -> bool:
    """Whether the request has one of `tokens`, or a signature of `body` with one, in the way of `sender`; an
    empty token never matches. Quay and Docker Hub have the receiver's path alone, which nobody can guess.
    """
    known = [token for token in tokens if token]
    if sender in _PATH_ALONE:
        return bool(known)
    if sender in _TOKENS:
        # The token itself, as bytes that HTTP takes for Latin-1. Digests of it have one length, so that not
        # even the token's length is disclosed.
        wanted = [hashlib.sha256(token).digest() for token in known]
        given = hashlib.sha256(_TOKENS[sender](headers)).digest()
    else:
        algorithm, given = _signature(sender, headers)
        if algorithm not in {"sha256", "sha512"}:
            return False
        wanted = [hmac.new(token, body, algorithm).hexdigest().encode() for token in known]
    # All tokens are compared, so that the time does not disclose which one matched.
    matches = [hmac.compare_digest(given, digest) for digest in wanted]
    return any(matches)


def _gitlab_token(headers: Headers) -> bytes:
    return (header(headers, "x-gitlab-token") or "").encode("latin-1", "replace")


def _bearer_token(headers: Headers) -> bytes:
    """Harbor sends what its field `Auth Header` has, with or without a scheme."""
    text = header(headers, "authorization") or ""
    return text.removeprefix("Bearer ").encode("latin-1", "replace")


def _password(headers: Headers) -> bytes:
    """Azure DevOps sends a username, which does not matter, and a password."""
    scheme, _, pair = (header(headers, "authorization") or "").partition(" ")
    try:
        decoded = base64.b64decode(pair, validate=True) if scheme.lower() == "basic" else b""
    except (binascii.Error, ValueError):
        return b""
    return decoded.partition(b":")[2]


_TOKENS: Final[Mapping[str, Callable[[Headers], bytes]]] = {
    "gitlab": _gitlab_token, "harbor": _bearer_token, "azure-devops": _password,
}  # fmt: skip
"""Senders that send the token itself, and how it is read."""
_PATH_ALONE: Final = frozenset({"quay", "dockerhub"})


def _signature(sender: Sender, headers: Headers) -> tuple[str, bytes]:
    """(algorithm, hexadecimal digits)."""
    if sender == "gitea" and (bare := header(headers, "x-gitea-signature")) is not None:
        return "sha256", _digits(bare)
    generic = sender == "generic-hmac"
    named = {"generic-hmac": "x-signature", "bitbucket": "x-hub-signature"}.get(sender, "x-hub-signature-256")
    algorithm, _, digits = (header(headers, named) or "").strip().partition("=")
    return algorithm if generic or algorithm == "sha256" else "", _digits(digits)


def _digits(text: str) -> bytes:
    return text.strip().lower().encode("latin-1", "replace")


def _generic(payload: Mapping[str, Any], body: bytes) -> Push | Refusal:
    """`{"repository": URL, "ref": "refs/heads/…", "commit": SHA, "id": …}`; only the first is needed. Of an
    artifact `ref` is a tag, and `commit` its digest.
    """
    repository, reference, commit = (payload.get(name) for name in ("repository", "ref", "commit"))
    if not _is_text(repository):
        return Refusal(
            400, '`repository` is missing: {"repository": "https://…", "ref": "refs/heads/…", "commit": "…"}'
        )
    is_artifact = str(repository).startswith(SCHEME)
    known = _tag(reference) if is_artifact else _reference(reference)
    if reference is not None and known is None:
        wanted = "a tag such as production" if is_artifact else "a full name such as refs/heads/main"
        return Refusal(400, f"`ref` must be {wanted}")
    digits = str(commit).removeprefix("sha256:").lower()
    if commit is not None and not _COMMIT.fullmatch(digits):
        return Refusal(400, "`commit` must be a whole SHA in hexadecimal digits")
    update = Update(known, _commit(digits))
    return Push((str(repository),), (update,), hashlib.sha256(body).hexdigest())


@dataclass(frozen=True, slots=True)
class _Content:
    """What a payload says."""

    repositories: Iterable[object]
    """Addresses, of which those count that are texts."""
    updates: Iterable[Update]


def _push(sender: Sender, headers: Headers, payload: Mapping[str, Any], body: bytes) -> Push | Refusal:
    content = _READERS.get(sender, _git)(payload)
    repositories = tuple(dict.fromkeys(str(url) for url in content.repositories if _is_text(url)))
    if not repositories:
        return Refusal(400, "the payload names no repository")
    updates = tuple(dict.fromkeys(content.updates)) or _ANY
    delivery = next(
        (value for name in _DELIVERY_HEADERS.get(sender, ()) if (value := header(headers, name))), ""
    )
    delivery = delivery if re.fullmatch(r"[A-Za-z0-9-]{1,64}", delivery) else ""
    # Where the body is signed and the id is not, only the body distinguishes a delivery from another.
    named = f"{delivery} " if sender == "gitlab" else ""
    identity = f"{named}{hashlib.sha256(body).hexdigest()}"
    return Push(repositories, updates if len(updates) <= _MOST_UPDATES else _ANY, identity, delivery)


_EVENT_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "github": ("x-github-event",),
    "gitea": ("x-gitea-event", "x-forgejo-event", "x-gogs-event", "x-github-event"),
    "gitlab": ("x-gitlab-event",),
    "bitbucket": ("x-event-key",),
}
_DELIVERY_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "github": ("x-github-delivery",),
    "gitea": ("x-gitea-delivery", "x-forgejo-delivery", "x-github-delivery"),
    # The same again when a delivery is tried again; older versions send the second alone.
    "gitlab": ("idempotency-key", "x-gitlab-event-uuid"),
    "bitbucket": ("x-request-uuid", "x-request-id"),
}
_PUSHES: Final[Mapping[str, frozenset[str]]] = {
    "github": frozenset({"push"}),
    "gitea": frozenset({"push"}),
    "gitlab": frozenset({"push", "tag_push"}),
    "bitbucket": frozenset({"repo:push", "repo:refs_changed"}),
    "azure-devops": frozenset({"git.push"}),
    "harbor": frozenset({"push_artifact", "harbor.artifact.pushed"}),
    "quay": frozenset({"push"}),
    "dockerhub": frozenset({"push"}),
}
_PINGS: Final = frozenset({"ping", "diagnostics:ping"})


def _event(sender: Sender, headers: Headers, payload: Mapping[str, Any]) -> str:
    if sender in _PATH_ALONE:
        # They send notifications of other kinds without these fields.
        return "push" if {"updated_tags", "push_data"} & payload.keys() else ""
    if sender not in _EVENT_HEADERS:
        return _normal(str(payload.get("eventType" if sender == "azure-devops" else "type")))
    named = (value for name in _EVENT_HEADERS[sender] if (value := header(headers, name)) is not None)
    event = _normal(next(named, ""))
    # GitLab's instance-wide hooks say inside what happened.
    within = payload.get("object_kind") or payload.get("event_name")
    return _normal(str(within)) if event == "system" else event


def _normal(event: str) -> str:
    """Turn `Tag Push Hook`, of GitLab's header, into `tag_push`, of its payload."""
    return event.strip().lower().removesuffix(" hook").replace(" ", "_")


_URLS: Final = (
    "clone_url", "ssh_url", "git_url", "html_url",
    "git_http_url", "git_ssh_url", "http_url", "web_url", "url", "homepage",
)  # fmt: skip
"""Fields with a repository's address, of GitHub, GitLab and Gitea."""


def _git(payload: Mapping[str, Any]) -> _Content:
    """GitHub, GitLab, Gitea and Forgejo."""
    parts = (_object(payload, "repository"), _object(payload, "project"))
    urls = [part.get(name) for part in parts for name in _URLS]
    return _Content(urls, [Update(_pushed_reference(payload), _head(payload))])


def _pushed_reference(payload: Mapping[str, Any]) -> str | None:
    """The reference; `create` and `delete` have it short, `release` has a tag."""
    reference = payload.get("ref")
    kind = _KINDS.get(str(payload.get("ref_type")))
    if kind is not None and isinstance(reference, str) and not reference.startswith("refs/"):
        reference = f"{kind}{reference}"
    tag = _object(payload, "release").get("tag_name")
    return _reference(reference) or (_reference(f"{TAGS}{tag}") if _is_text(tag) else None)


_KINDS: Final = {"branch": HEADS, "tag": TAGS}


def _head(payload: Mapping[str, Any]) -> str | None:
    """The commit. `after` comes last: of an annotated tag it is the tag's own object."""
    head = _object(payload, "head_commit").get("id")
    commits = (head, payload.get("checkout_sha"), payload.get("after"))
    return next(filter(None, map(_commit, commits)), None)


def _bitbucket(payload: Mapping[str, Any]) -> _Content:
    """Bitbucket Cloud (`repo:push`) and Data Center (`repo:refs_changed`)."""
    repository = _object(payload, "repository")
    links = _object(repository, "links")
    urls = [_object(links, "html").get("href"), *(link.get("href") for link in _objects(links, "clone"))]
    project, slug = _object(repository, "project").get("key"), repository.get("slug")
    if _is_text(project) and _is_text(slug):
        # Data Center does not always say where it is.
        urls.append(f"https://{ANY_HOST}/{project}/{slug}")
    changed = [
        Update(_reference(_object(change, "ref").get("id")), _commit(change.get("toHash")))
        for change in _objects(payload, "changes")
    ]
    for change in _objects(_object(payload, "push"), "changes"):
        # `new` is null where the reference was deleted.
        after = _object(change, "new") or _object(change, "old")
        kind = _KINDS.get(str(after.get("type")), "")
        commit = _object(_object(change, "new"), "target").get("hash")
        changed.append(Update(_reference(f"{kind}{after.get('name')}"), _commit(commit)))
    return _Content(urls, changed)


def _azure_devops(payload: Mapping[str, Any]) -> _Content:
    resource = _object(payload, "resource")
    changed = [
        Update(_reference(change.get("name")), _commit(change.get("newObjectId")))
        for change in _objects(resource, "refUpdates")
    ]
    return _Content([_object(resource, "repository").get("remoteUrl")], changed)


def _harbor(payload: Mapping[str, Any]) -> _Content:
    """Both forms that it can be set to: its own, and CloudEvents."""
    event = _object(payload, "event_data") or _object(payload, "data")
    resources = _objects(event, "resources")
    urls = [_artifact(_without_tag(resource.get("resource_url"))) for resource in resources]
    changed = [
        Update(_tag(resource.get("tag")), _commit(str(resource.get("digest")).removeprefix("sha256:")))
        for resource in resources
    ]
    return _Content(urls, changed)


def _without_tag(url: object) -> str:
    """`HOST/REPOSITORY` of `HOST/REPOSITORY:TAG` or `…@DIGEST`; the host may have a port."""
    head, slash, name = (url if isinstance(url, str) else "").partition("@")[0].rpartition("/")
    return f"{head}{slash}{name.partition(':')[0]}"


def _quay(payload: Mapping[str, Any]) -> _Content:
    # A list; an object by tag in old versions.
    tags = payload.get("updated_tags")
    names: Iterator[object] = iter(tags if isinstance(tags, list | dict) else ())
    return _Content([_artifact(payload.get("docker_url"))], [Update(_tag(name)) for name in names])


def _docker_hub(payload: Mapping[str, Any]) -> _Content:
    name = _object(payload, "repository").get("repo_name")
    place = f"docker.io/{name}" if _is_text(name) else None
    return _Content([_artifact(place)], [Update(_tag(_object(payload, "push_data").get("tag")))])


def _artifact(place: object) -> str | None:
    return f"{SCHEME}{place}" if _is_text(place) else None


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], _Content]]] = {
    "bitbucket": _bitbucket,
    "azure-devops": _azure_devops,
    "harbor": _harbor,
    "quay": _quay,
    "dockerhub": _docker_hub,
}


def _commit(value: object) -> str | None:
    """Return a valid commit or None; zeros mean that the reference was deleted."""
    text = value.lower() if isinstance(value, str) and len(value) <= 64 else ""
    return text if _COMMIT.fullmatch(text) and text.strip("0") else None


def _reference(value: object) -> str | None:
    return str(value) if _is_text(value) and re.fullmatch(r"refs/[^\x00-\x20\x7f]+", str(value)) else None


def _tag(value: object) -> str | None:
    return str(value) if isinstance(value, str) and TAG.fullmatch(value) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 2048


def _object(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = payload.get(name)
    return part if isinstance(part, dict) else {}


def _objects(payload: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    parts = payload.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
