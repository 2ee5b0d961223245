"""A remote's references, and the revision that a person names among them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.api.parsing import InvalidTextError
from controller.api.references import (
    COMMIT,
    HEADS,
    REASON,
    SHORT_COMMIT,
    TAGS,
    parse_range,
    require_commit,
    require_name,
    short_name,
)
from controller.runtime.setbacks import Failed, Stalled, Waiting
from controller.sources.backend import Revision
from controller.sources.git_credentials import LIMIT, SHA256_REPOSITORY
from controller.sources.versions import highest, near, shorten_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KINDS = ("branch", "tag", "semver", "name", "commit")
MAX_REFERENCES: Final = 100_000
_MANY: Final = 1_000
_REVISION: Final = re.compile(r"(?:[^:\s]+@)?sha1:([0-9a-f]{40})")
"""A revision, as status shows it."""
_RELATIVE: Final = re.compile(r"[~^].*|@\{.*|^@$")
"""What Git's command line counts from a commit, as in `HEAD~1`."""
_LINE: Final = re.compile(r".+")
_LONG: Final = 64 * 1024
"""Characters."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What to follow, by Flux's order: commit, name, tag, semver, branch, HEAD. Raises InvalidTextError."""

    branch: str | None = None
    tag: str | None = None
    semver: str | None = None
    """A range in npm's notation, over tags with or without a leading `v`."""
    name: str | None = None
    """A full name: `refs/heads/x`, `refs/pull/420/head`."""
    commit: str | None = None
    """40 hexadecimal digits."""

    def __post_init__(self) -> None:
        for kind, value in (("branch", self.branch), ("tag", self.tag), ("name", self.name)):
            if value is not None:
                require_name(kind, value)
        if self.commit is not None:
            require_commit(self.commit)
        if self.semver is not None:
            parse_range(self.semver)

    @classmethod
    def parse(cls, text: str | None) -> Reference:
        """`branch:main`, `main` or `refs/heads/main`, `tag:v1` or `refs/tags/v1`, `semver:>=1.0 <2`,
        `name:refs/pull/1/head`, `commit:<40 hex>`. Raises InvalidTextError.
        """
        if text is None or text.strip() == "HEAD":
            return cls()
        if not text.strip():
            message = "the reference is empty; name a branch, or leave it out to follow the repository's own"
            raise InvalidTextError(message, REASON)
        if (revision := _REVISION.fullmatch(text.strip())) is not None:
            raise InvalidTextError(f"{text.strip()!r} is a revision; write commit:{revision[1]}", REASON)
        if (relative := _RELATIVE.search(text)) is not None and ":" not in text:
            message = (
                f"{relative[0]!r} counts from another commit, which no reference does; write commit: and the "
                f"40 digits that this prints: git rev-parse '{text.strip()}'"
            )
            raise InvalidTextError(message, REASON)
        kind, colon, value = (part.strip() for part in text.strip().partition(":"))
        if not colon:
            kind, value = "tag" if kind.startswith(TAGS) else "branch", kind
        if kind not in KINDS:
            message = f"{kind!r} is not a kind of reference; write one of " + ", ".join(
                f"{known}:…" for known in KINDS
            )
            raise InvalidTextError(message, REASON)
        if kind in {"branch", "tag"}:
            value = short_name(kind, value)
        if kind == "commit" and COMMIT.fullmatch(value.lower()):
            value = value.lower()
        return cls(**{kind: value})

    def __str__(self) -> str:
        for kind in ("commit", "name", "tag", "semver", "branch"):
            if (value := getattr(self, kind)) is not None:
                return f"{kind}:{value}"
        return "HEAD"

    @property
    def follows_versions(self) -> bool:
        """Whether the range of versions is what decides."""
        return self.semver is not None and self.commit is self.name is self.tag is None

    def full_name(self, revision: Revision) -> str | None:
        """The remote's name of what `revision` was read from; None for a pinned commit without a branch."""
        if self.commit is not None:
            return HEADS + self.branch if self.branch else None
        if self.name is not None:
            return self.name
        if self.tag is not None or self.semver is not None:
            return TAGS + revision.name
        return HEADS + revision.name if revision.name else "HEAD"


def choose(refs: Mapping[str, str], head: str | None, reference: Reference) -> Revision:
    """What `reference` points at among `refs`.

    `refs` maps full names to commit ids (an annotated tag to the commit it marks); a detached HEAD may be
    among them. `head` is the full name that HEAD stands for, if it stands for one. Raises `Waiting` for a
    repository with nothing in it yet, `Failed` where the reference is not there (it may come).
    """
    if reference.commit is not None:
        return _revision(reference.branch or "", reference.commit)
    if not refs:
        message = "the repository has no commit yet; commit the definitions (and push them, if it is remote)"
        raise Waiting("EmptyRepository", message)
    if reference.name is not None:
        return _by_name(refs, reference.name)
    if reference.tag is not None:
        return _short(refs, TAGS, reference.tag)
    if reference.semver is not None:
        return _highest(refs, reference.semver)
    if reference.branch is not None:
        return _short(refs, HEADS, reference.branch)
    return _default(refs, head)


def _revision(name: str, oid: str) -> Revision:
    if not COMMIT.fullmatch(oid):
        raise Stalled("UnsupportedObjectFormat", f"{SHA256_REPOSITORY} (it has the id {oid[:64]!r})")
    return Revision(name, f"sha1:{oid}")


def _by_name(refs: Mapping[str, str], name: str) -> Revision:
    if name in refs:
        return _revision(name, refs[name])
    raise Failed("ReferenceNotFound", f"no reference {name!r}; {near(name, refs, 'references')}")


def _short(refs: Mapping[str, str], prefix: str, name: str) -> Revision:
    if (full := prefix + name) in refs:
        return _revision(name, refs[full])
    (kind, kinds), (other, other_prefix) = (
        (("branch", "branches"), ("tag", TAGS)) if prefix == HEADS else (("tag", "tags"), ("branch", HEADS))
    )
    known = _under(refs, prefix)
    # `origin/main`, `heads/main`
    inner = next((short for short in known if f"/{name}".casefold().endswith(f"/{short}".casefold())), None)
    suggestion = (
        f"did you mean {inner!r}? {shorten_list(known, kinds)}" if inner else near(name, known, kinds)
    )
    message = f"no {kind} {name!r}; {suggestion}"
    if other_prefix + name in refs:
        message += f"; there is a {other} of that name: write {other}:{name}"
    elif (full := f"refs/{name}") in refs:
        message += f"; write {full}"
    elif COMMIT.fullmatch(name.lower()):
        message += f"; for a commit write commit:{name}"
    elif SHORT_COMMIT.fullmatch(name.lower()):
        commits = {oid for oid in refs.values() if oid.startswith(name.lower())}
        if len(commits) == 1:
            message += f"; for a commit write commit:{commits.pop()}"
        else:
            message += f"; for a commit write commit: and its 40 digits, as printed by: git rev-parse {name}"
    raise Failed("ReferenceNotFound", message)


def _default(refs: Mapping[str, str], head: str | None) -> Revision:
    if head is not None and head in refs:
        name = head.removeprefix(HEADS)
        return _revision(name, refs[head])
    if head is None and "HEAD" in refs:
        return _revision("", refs["HEAD"])
    branches = shorten_list(_under(refs, HEADS), "branches")
    why = f"HEAD points to {head!r}, which does not exist" if head else "HEAD points to no branch"
    raise Failed("ReferenceNotFound", f"{why}; name a branch; {branches}")


def _highest(refs: Mapping[str, str], text: str) -> Revision:
    tags = _under(refs, TAGS)
    tag = highest(tags, text)
    if tag is None:
        message = f"no tag matches the version range {text!r}; {shorten_list(tags, 'tags')}"
        raise Failed("ReferenceNotFound", message)
    return _revision(tag, refs[TAGS + tag])


def _under(refs: Iterable[str], prefix: str) -> list[str]:
    return sorted(name.removeprefix(prefix) for name in refs if name.startswith(prefix))


@dataclass(frozen=True, slots=True)
class References:
    """What a remote's references point at."""

    commits: Mapping[str, str]
    """Commit ids by full name, of an annotated tag its commit's; a detached HEAD may be among them."""
    head: str | None
    """The full name that HEAD stands for, if it stands for one."""


def listing_options(reference: Reference) -> tuple[str, ...]:
    """Options for `git ls-remote`: pull requests, which forges list, are asked for by name alone."""
    everything = reference.name is not None or reference == Reference()
    return () if everything else ("--heads", "--tags")


async def parse(text: str, where: str) -> References:
    """What `git ls-remote --symref` printed. Raises Stalled (LimitExceeded)."""
    if len(text) < _LONG:
        return _parse_listing(text, where)
    return await asyncio.to_thread(_parse_listing, text, where)


async def choose_among(references: References, reference: Reference) -> Revision:
    """Return the revision that `choose` finds among these references."""
    if len(references.commits) < _MANY:
        return choose(references.commits, references.head, reference)
    return await asyncio.to_thread(choose, references.commits, references.head, reference)


def _parse_listing(text: str, where: str) -> References:
    """`<id>\\t<name>`, `ref: <name>\\tHEAD`, and tags' commits as `^{}`."""
    heads: list[str] = []
    commits = commits_of(_references_of(text, heads))
    if len(commits) > MAX_REFERENCES:
        raise Stalled(LIMIT, f"{where}: the repository has more than {MAX_REFERENCES} references")
    return References(commits, heads[-1] if heads else None)


def _references_of(text: str, heads: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each (id, name), line by line as there may be many; put what HEAD stands for into `heads`."""
    for line in _LINE.finditer(text):
        value, tab, name = line[0].partition("\t")
        if value.startswith("ref: "):
            if name == "HEAD":
                heads.append(value.removeprefix("ref: "))
        elif tab:
            yield value, name


def commits_of(listed: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Commit ids by name, from (id, name); what is listed as `NAME^{}` is the commit of the tag `NAME`."""
    commits: dict[str, str] = {}
    of_tags: dict[str, str] = {}
    for value, name in listed:
        (of_tags if name.endswith("^{}") else commits)[name.removesuffix("^{}")] = value
    return commits | of_tags
