"""Pushes that a webhook reports: repository, reference and commit, and the sources that they concern. Pure.

Unsigned content is not parsed, and signatures are compared in constant time.

GitHub: https://docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries
GitLab: https://docs.gitlab.com/user/project/integrations/webhooks/
Gitea: https://docs.gitea.com/usage/repository/webhooks
generic-hmac: as Flux's receiver of that name, without SHA-1.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

import orjson

from controller.api.references import HEADS, TAGS
from controller.api.source_spec import DEFAULT_BRANCH, GitReference
from evaluator.http.messages import Headers, header

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


Sender = Literal["generic-hmac", "github", "gitlab", "gitea"]
MOST_BYTES: Final = 3 * 1024 * 1024
"""Most bytes of a body, as of Flux's receiver; GitHub's pushes are far smaller."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_EVENT_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "github": ("x-github-event",),
    "gitea": ("x-gitea-event", "x-forgejo-event", "x-gogs-event", "x-github-event"),
    "gitlab": ("x-gitlab-event",),
}
_DELIVERY_HEADERS: Final[dict[str, tuple[str, ...]]] = {
    "github": ("x-github-delivery",),
    "gitea": ("x-gitea-delivery", "x-forgejo-delivery", "x-github-delivery"),
    # The same again when a delivery is tried again; older versions send the second alone.
    "gitlab": ("idempotency-key", "x-gitlab-event-uuid"),
}
_PUSHES: Final[dict[str, frozenset[str]]] = {
    "github": frozenset({"push"}),
    "gitea": frozenset({"push"}),
    "gitlab": frozenset({"push", "tag_push"}),
}
_URLS: Final = (
    "clone_url", "ssh_url", "git_url", "html_url",
    "git_http_url", "git_ssh_url", "http_url", "web_url", "url", "homepage",
)  # fmt: skip
"""Fields with a repository's address, of all supported Git servers."""


@dataclass(frozen=True, slots=True)
class Push:
    """A push."""

    repositories: tuple[str, ...]
    """The addresses of the repository in all spellings of the payload."""
    reference: str | None
    """A full name such as `refs/heads/main`; None where the event names none: any may have changed."""
    commit: str | None
    """Hexadecimal; None where none was sent, or the reference was deleted."""
    identity: str
    """Equal for the same delivery sent again, by any sender."""
    delivery: str = ""
    """ID of the delivery in the sender's log; empty without one."""


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
    if not is_signed(sender, headers, body, tokens):
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
    if event != "ping" and event in ({_normal(name) for name in events} or _PUSHES[sender]):
        return _push(sender, headers, payload, body)
    return Quiet("pong" if event == "ping" else "ignored: spec.events does not list this event")


def is_signed(sender: Sender, headers: Headers, body: bytes, tokens: Iterable[bytes]) -> bool:
    """Whether `body` is signed with one of `tokens` in the way of `sender`; an empty token never matches."""
    known = [token for token in tokens if token]
    if sender == "gitlab":
        # GitLab does not sign: it sends the token itself, as bytes that HTTP takes for Latin-1. Digests of it
        # have one length, so that not even the token's length is disclosed.
        given = (header(headers, "x-gitlab-token") or "").encode("latin-1", "replace")
        wanted = [hashlib.sha256(token).digest() for token in known]
        given = hashlib.sha256(given).digest()
    else:
        algorithm, given = _signature(sender, headers)
        if algorithm not in {"sha256", "sha512"}:
            return False
        wanted = [hmac.new(token, body, algorithm).hexdigest().encode() for token in known]
    # All tokens are compared, so that the time does not disclose which one matched.
    matches = [hmac.compare_digest(given, digest) for digest in wanted]
    return any(matches)


def _signature(sender: Sender, headers: Headers) -> tuple[str, bytes]:
    """(algorithm, hexadecimal digits)."""
    if sender == "gitea" and (bare := header(headers, "x-gitea-signature")) is not None:
        return "sha256", _digits(bare)
    generic = sender == "generic-hmac"
    text = header(headers, "x-signature" if generic else "x-hub-signature-256") or ""
    algorithm, _, digits = text.strip().partition("=")
    return algorithm if generic or algorithm == "sha256" else "", _digits(digits)


def _digits(text: str) -> bytes:
    return text.strip().lower().encode("latin-1", "replace")


def _generic(payload: Mapping[str, Any], body: bytes) -> Push | Refusal:
    """`{"repository": URL, "ref": "refs/heads/…", "commit": SHA, "id": …}`; only the first is needed."""
    repository, reference, commit = (payload.get(name) for name in ("repository", "ref", "commit"))
    if not _is_text(repository):
        return Refusal(
            400, '`repository` is missing: {"repository": "https://…", "ref": "refs/heads/…", "commit": "…"}'
        )
    if reference is not None and _reference(reference) is None:
        return Refusal(400, "`ref` must be a full name such as refs/heads/main")
    if commit is not None and not _COMMIT.fullmatch(str(commit).lower()):
        return Refusal(400, "`commit` must be a whole SHA in hexadecimal digits")
    return Push((str(repository),), _reference(reference), _commit(commit), hashlib.sha256(body).hexdigest())


def _push(sender: Sender, headers: Headers, payload: Mapping[str, Any], body: bytes) -> Push | Refusal:
    repositories = tuple(
        dict.fromkeys(
            str(part[name])
            for part in (_object(payload, "repository"), _object(payload, "project"))
            for name in _URLS
            if _is_text(part.get(name))
        )
    )
    if not repositories:
        return Refusal(400, "the payload names no repository")
    delivery = _first(headers, _DELIVERY_HEADERS[sender])
    delivery = delivery if re.fullmatch(r"[A-Za-z0-9-]{1,64}", delivery) else ""
    # Where the body is signed and the id is not, only the body distinguishes a delivery from another.
    named = f"{delivery} " if sender == "gitlab" else ""
    identity = f"{named}{hashlib.sha256(body).hexdigest()}"
    return Push(repositories, _pushed_reference(payload), _head(payload), identity, delivery)


def _event(sender: Sender, headers: Headers, payload: Mapping[str, Any]) -> str:
    event = _normal(_first(headers, _EVENT_HEADERS[sender]))
    # GitLab's instance-wide hooks say inside what happened.
    within = payload.get("object_kind") or payload.get("event_name")
    return _normal(str(within)) if event == "system" else event


def _normal(event: str) -> str:
    """Turn `Tag Push Hook`, of GitLab's header, into `tag_push`, of its payload."""
    return event.strip().lower().removesuffix(" hook").replace(" ", "_")


def _pushed_reference(payload: Mapping[str, Any]) -> str | None:
    """The reference; `create` and `delete` have it short, `release` has a tag."""
    reference = payload.get("ref")
    kind = {"branch": "refs/heads/", "tag": "refs/tags/"}.get(str(payload.get("ref_type")))
    if kind is not None and isinstance(reference, str) and not reference.startswith("refs/"):
        reference = f"{kind}{reference}"
    tag = _object(payload, "release").get("tag_name")
    return _reference(reference) or (_reference(f"refs/tags/{tag}") if _is_text(tag) else None)


def _head(payload: Mapping[str, Any]) -> str | None:
    """The commit. `after` comes last: of an annotated tag it is the tag's own object."""
    head = _object(payload, "head_commit").get("id")
    commits = (head, payload.get("checkout_sha"), payload.get("after"))
    return next(filter(None, map(_commit, commits)), None)


def _commit(value: object) -> str | None:
    """Return a valid commit or None; zeros mean that the reference was deleted."""
    text = value.lower() if isinstance(value, str) and len(value) <= 64 else ""
    return text if _COMMIT.fullmatch(text) and text.strip("0") else None


def _reference(value: object) -> str | None:
    return str(value) if _is_text(value) and re.fullmatch(r"refs/[^\x00-\x20\x7f]+", str(value)) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 2048


def _object(payload: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = payload.get(name)
    return part if isinstance(part, dict) else {}


def _first(headers: Headers, names: Iterable[str]) -> str:
    return next((value for name in names if (value := header(headers, name)) is not None), "")


_SCP: Final = re.compile(r"(?:[^@/\s]+@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\s]+):(?P<path>[^\s]+)")


def repositories(push: Push) -> set[str]:
    """Return the pushed repository in the normal form of each address in the push."""
    return {place for url in push.repositories if (place := normalise_url(url)) is not None}


def follows(wanted: GitReference, push: Push) -> bool:
    """Whether a source with this reference follows the pushed one: its most exact field decides."""
    pushed = push.reference
    if pushed is None:
        return True
    if wanted.commit is not None:
        return wanted.commit == push.commit
    if wanted.name is not None:
        return wanted.name == pushed
    if wanted.tag is not None:
        return pushed == f"{TAGS}{wanted.tag}"
    if wanted.semver is not None:
        return pushed.startswith(TAGS)
    return pushed == f"{HEADS}{wanted.branch or DEFAULT_BRANCH}"


def normalise_url(url: str) -> str | None:
    """Return `host/path`, the same for all addresses of a repository; None for an invalid address.

    Scheme, user, port, case and `.git` are ignored: a push may contain the https address, and a source the
    ssh one. Waking a source needlessly costs one poll; missing one costs an interval.
    """
    try:
        if "://" in url:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path if parts.scheme else ""
        elif (scp := _SCP.fullmatch(url)) is not None:
            host, path = scp["host"].strip("[]"), scp["path"]
        else:
            return None
    except ValueError:
        return None
    # Where these servers take ssh on port 443.
    https = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}
    host = host.lower().rstrip(".")
    path = unquote(path).strip("/").casefold().removesuffix(".git").rstrip("/")
    return f"{https.get(host, host)}/{path}" if path else None
