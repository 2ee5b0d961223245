"""Whether a revision may follow the accepted one: its ancestry, and the signatures of its commits and its
tag. Runs in a helper process, over a repository of a stranger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pygit2
from pygit2.enums import ObjectType, SortMode

from controller.runtime.user_text.plain_text import one_line
from controller.sources.git.listing.names import TAGS
from controller.sources.git.reading.repository import open_repository
from controller.sources.git.signatures.rules import Rule, not_allowed
from controller.sources.git.signatures.signed_objects import (
    SignedObject,
    UnreadableObjectError,
    read_commit,
    read_tag,
)
from controller.sources.verification.signed import verify
from controller.sources.verification.signer import NotBelievedError

if TYPE_CHECKING:
    from pathlib import Path

    from controller.sources.verification.keys import Keys
    from controller.sources.verification.signer import Signer

REWRITTEN: Final = "HistoryRewritten"
COMMIT_REFUSED: Final = "InvalidCommitSignature"
TAG_REFUSED: Final = "InvalidTagSignature"
NOT_ALLOWED: Final = "SignerNotAllowed"
LIMIT: Final = "LimitExceeded"
_MOST_COMMITS: Final = 10_000
_MOST_BYTES: Final = 1024 * 1024
"""Of a commit or a tag."""
_SUBJECT: Final = 50


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be judged."""

    commit: str
    """40 hexadecimal digits."""
    tag: str = ""
    """The full name of the tag that must be signed; empty: none."""
    accepted: str = ""
    """The commit that was accepted last; empty: none was."""
    let_through: bool = False
    """Whether a person accepts `commit`, whatever it follows: it alone must be signed."""
    fast_forward: bool = False
    """Whether `commit` must be a descendant of `accepted`."""
    head: bool = False
    """Whether `commit` must be signed."""
    every: bool = False
    """Whether all commits since `accepted` must be signed."""
    keys: Keys | None = None
    rules: tuple[Rule, ...] = ()
    """Who may sign what; with `every`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: a refusal, or who signed."""

    signer: Signer | None = None
    """Of the commit, or where it need not be signed, of the tag."""
    reason: str = ""
    """Of the refusal; empty: there is none."""
    message: str = ""


class _RefusedError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.verdict = Verdict(None, reason, message)


def judge(path: Path, question: Question) -> Verdict:
    """The verdict on the repository at `path`. Raises ValueError where objects are missing."""
    repository = open_repository(path)
    try:
        if not question.let_through and question.accepted not in {"", question.commit}:
            _follows(repository, question)
        signer = None
        if question.keys is not None and question.tag:
            signer = _tag_signer(repository, question, question.keys)
        if question.keys is not None and question.head:
            signer = _commit_signers(repository, question, question.keys)
    except _RefusedError as refused:
        return refused.verdict
    except (pygit2.GitError, KeyError) as error:
        # The caller is in another process, to which libgit2's errors cannot be sent.
        raise ValueError(f"its history cannot be read: {error}") from None
    return Verdict(signer)


def _follows(repository: pygit2.Repository, question: Question) -> None:
    commit, accepted = question.commit, question.accepted
    if repository.is_shallow and (question.fast_forward or question.every):
        message = f"commit {commit} cannot be compared with {accepted}: the history of the repository is cut"
        raise _RefusedError(REWRITTEN, f"{message} (git fetch --unshallow mends that there)")
    if not question.fast_forward or (accepted in repository and repository.descendant_of(commit, accepted)):
        return
    older = accepted in repository and repository.descendant_of(accepted, commit)
    how = "is older than" if older else "does not descend from"
    raise _RefusedError(REWRITTEN, f"commit {commit} {how} commit {accepted}, which was accepted last")


def _tag_signer(repository: pygit2.Repository, question: Question, keys: Keys) -> Signer:
    short = question.tag.removeprefix(TAGS)
    oid = repository.lookup_reference(question.tag).target
    raw = _raw(repository, str(oid), ObjectType.TAG)
    if raw is None:
        raise _RefusedError(TAG_REFUSED, f"tag {short!r} is not annotated, so it is not signed")
    try:
        tag = read_tag(raw)
        if (tag.kind, tag.target, tag.name) != ("commit", question.commit, short):
            # A signed tag of another name, or of another commit, was put in its place.
            message = f"tag {short!r}: it says to be the tag {tag.name!r} of {tag.kind} {tag.target}"
            raise _RefusedError(TAG_REFUSED, message)
        return verify(tag.content, tag.signature, keys, tag.written)
    except (NotBelievedError, UnreadableObjectError) as error:
        raise _RefusedError(TAG_REFUSED, f"tag {short!r}: {error}") from error


def _commit_signers(repository: pygit2.Repository, question: Question, keys: Keys) -> Signer:
    """Who signed the newest commit."""
    since = _since(repository, question)
    signed = {commit: _commit_signer(repository, commit, keys) for commit in since or [question.commit]}
    if question.rules and since:
        why = not_allowed(repository, question.rules, question.accepted, signed)
        if why:
            raise _RefusedError(NOT_ALLOWED, f"commit {question.commit}: {why}")
    return signed[question.commit]


def _since(repository: pygit2.Repository, question: Question) -> list[str]:
    """Ids of the commits since the accepted one, the oldest first; none where they need not be signed."""
    if not question.every or question.let_through or question.accepted in {"", question.commit}:
        return []
    walk = repository.walk(question.commit, SortMode.TOPOLOGICAL)
    walk.hide(question.accepted)
    found = []
    for commit in walk:
        found.append(str(commit.id))
        if len(found) > _MOST_COMMITS:
            message = f"more than {_MOST_COMMITS} commits since {question.accepted} would have to be verified"
            raise _RefusedError(LIMIT, message)
    return found[::-1]


def _commit_signer(repository: pygit2.Repository, commit: str, keys: Keys) -> Signer:
    raw = _raw(repository, commit, ObjectType.COMMIT)
    if raw is None:
        raise _RefusedError(COMMIT_REFUSED, f"{commit} is no commit")
    try:
        read: SignedObject = read_commit(raw)
        return verify(read.content, read.signature, keys, read.written)
    except (NotBelievedError, UnreadableObjectError) as error:
        raise _RefusedError(COMMIT_REFUSED, f"commit {commit} '{_subject(raw)}': {error}") from error


def _raw(repository: pygit2.Repository, oid: str, wanted: ObjectType) -> bytes | None:
    """An object's content; None where it is of another kind."""
    kind, size = repository.odb.read_header(oid)
    if ObjectType(kind) != wanted:
        return None
    if size > _MOST_BYTES:
        raise _RefusedError(LIMIT, f"{oid} has {size} bytes, more than {_MOST_BYTES}")
    return repository.odb.read(oid)[1]


def _subject(raw: bytes) -> str:
    line = raw.partition(b"\n\n")[2].strip().partition(b"\n")[0].decode("utf-8", "replace")
    return one_line(line, _SUBJECT)
