"""Judges a revision by its ancestry and signatures, in a helper, over a repository of a stranger."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pygit2
from pygit2.enums import ObjectType, SortMode

from controller.api.parsing import of_files
from controller.api.references import TAGS
from controller.runtime.plain_text import one_line
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.backend import NotBelievedError, NotJudgedError, Signer
from controller.sources.git_repository import open_repository, report_damage
from controller.sources.signing_keys import Keys, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pathspec import GitIgnoreSpec


_SIGNATURE: Final = b"gpgsig"
_OTHER: Final = b"gpgsig-sha256"
"""The signature of the same commit in a repository of SHA-256; no part of what this one signs."""
_BEGINS: Final = re.compile(
    rb"^-----BEGIN (?:PGP SIGNATURE|PGP MESSAGE|SIGNED MESSAGE|SSH SIGNATURE)-----", re.MULTILINE
)
_TIME: Final = re.compile(rb"> (\d{1,12}) [+-]\d{4}$")


class UnreadableObjectError(ValueError):
    """An object that Git would not make."""


@dataclass(frozen=True, slots=True)
class SignedObject:
    """A commit or a tag."""

    content: bytes
    signature: bytes
    """In its armor; empty where there is none."""
    written: datetime
    """By its committer's or tagger's clock."""


@dataclass(frozen=True, slots=True)
class SignedTag(SignedObject):
    """An annotated tag."""

    target: str
    """The id of what it marks."""
    kind: str
    """Type of the marked object: `commit`, `tag` and so on."""
    name: str
    """The tag's name, as the object has it."""


def read_commit(raw: bytes) -> SignedObject:
    """A commit's object. Raises UnreadableObjectError."""
    head, blank, message = raw.partition(b"\n\n")
    kept: list[bytes] = []
    signature: list[bytes] = []
    count = 0
    for name, lines in _headers(head):
        if name == _SIGNATURE:
            count += 1
            signature = [lines[0].removeprefix(_SIGNATURE + b" "), *(line[1:] for line in lines[1:])]
        elif name != _OTHER:
            kept += lines
    if count > 1:
        raise UnreadableObjectError("it has more than one signature")
    content = b"\n".join(kept) + blank + message
    armored = b"\n".join(signature) + b"\n" if signature else b""
    return SignedObject(content, armored, _time_of(kept, b"committer "))


def read_tag(raw: bytes) -> SignedTag:
    """An annotated tag's object. Raises UnreadableObjectError."""
    head, _, message = raw.partition(b"\n\n")
    headers = {name: lines[0].partition(b" ")[2] for name, lines in reversed(_headers(head))}
    try:
        target, kind, name = (headers[header].decode() for header in (b"object", b"type", b"tag"))
    except (KeyError, UnicodeDecodeError):
        raise UnreadableObjectError("it does not say what it marks") from None
    # As Git, which takes the last line that a signature may begin with.
    begins = [match.start() for match in _BEGINS.finditer(message)]
    start = len(raw) - len(message) + begins[-1] if begins else len(raw)
    return SignedTag(raw[:start], raw[start:], _time_of(head.split(b"\n"), b"tagger "), target, kind, name)


def _headers(head: bytes) -> list[tuple[bytes, list[bytes]]]:
    """(name, its line and those that continue it) in order."""
    headers: list[tuple[bytes, list[bytes]]] = []
    for line in head.split(b"\n"):
        if not line.startswith(b" "):
            headers.append((line.partition(b" ")[0], [line]))
        elif headers:
            headers[-1][1].append(line)
        else:
            raise UnreadableObjectError("it begins with a blank")
    return headers


def _time_of(lines: list[bytes], name: bytes) -> datetime:
    line = next((candidate for candidate in lines if candidate.startswith(name)), b"")
    time = _TIME.search(line)
    try:
        return datetime.fromtimestamp(int(time[1]) if time else 0, UTC)
    except (ValueError, OverflowError, OSError):
        raise UnreadableObjectError("its time cannot be read") from None


_FINGERPRINT: Final = re.compile(r"(SSH |PGP )?(SHA256:\S+|[0-9A-F]{40,64})")
REWRITTEN: Final = "HistoryRewritten"
COMMIT_REFUSED: Final = "InvalidCommitSignature"
TAG_REFUSED: Final = "InvalidTagSignature"
NOT_ALLOWED: Final = "SignerNotAllowed"
LIMIT: Final = "LimitExceeded"
NOT_VERIFIED: Final = "VerificationFailed"
"""The reason where a signature could not be verified, though it may be good."""
_MOST_COMMITS: Final = 2_000
_MOST_BYTES: Final = 1024 * 1024
_SUBJECT: Final = 50


@dataclass(frozen=True, slots=True)
class Group:
    """Signers, of which a number is enough."""

    signers: tuple[str, ...]
    """Names, mail addresses, or fingerprints of keys."""
    count: int = 1

    def is_satisfied(self, signers: list[Signer]) -> bool:
        """Whether enough of `signers` belong to it; keys of one name are one person."""
        people = {
            signer.name or signer.key
            for signer in signers
            if any(_is(signer, named) for named in self.signers)
        }
        return len(people) >= self.count

    def __str__(self) -> str:
        return f"{self.count} of {', '.join(self.signers)}"


@dataclass(frozen=True, slots=True)
class SignerRule:
    """The signers that some paths need."""

    paths: tuple[str, ...]
    """Patterns as in `.gitignore`."""
    any_of: tuple[Group, ...]
    """One group is enough."""
    merges: bool = False
    """Whether the signer of a merge commit signs for all of its changes against its first parent."""

    @property
    def pattern(self) -> GitIgnoreSpec:
        """Raises InvalidTextError for a path that is no pattern."""
        return of_files(self.paths)


def not_allowed(
    repository: pygit2.Repository, rules: tuple[SignerRule, ...], accepted: str, signed: Mapping[str, Signer]
) -> str:
    """The path that lacks a signer since `accepted`, or nothing. `signed`: by commit id, the newest last."""
    commits = [repository[oid].peel(pygit2.Commit) for oid in signed]
    if not commits:
        return ""
    before, tip = repository[accepted].peel(pygit2.Commit).tree, commits[-1].tree
    changed = list(_changed_paths(before, tip))
    for rule in rules:
        pattern = rule.pattern
        for path in filter(pattern.match_file, changed):
            wanted = _entry(tip, path)
            signers = [
                signed[str(commit.id)] for commit in commits if _brings(commit, path, wanted, rule.merges)
            ]
            if not any(group.is_satisfied(signers) for group in rule.any_of):
                who = ", ".join(str(signer) for signer in signers) or "no signed commit that introduces it"
                needed = " or ".join(map(str, rule.any_of))
                return f"{one_line(path, 200)} was changed by {who}; it needs {needed}"
    return ""


def _brings(commit: pygit2.Commit, path: str, wanted: object, merges: bool) -> bool:
    """Whether a commit has `wanted` at a path, and no parent has; with `merges` the first alone counts."""
    parents = commit.parents[:1] if merges else commit.parents
    before = [_entry(parent.tree, path) for parent in parents] or [None]
    return _entry(commit.tree, path) == wanted and wanted not in before


def _entry(tree: pygit2.Tree, path: str) -> object:
    """What identifies the content at a path; None: there is nothing."""
    try:
        entry = tree[path]
    except KeyError:
        return None
    return entry.id, entry.filemode


def _changed_paths(before: pygit2.Tree, after: pygit2.Tree) -> Iterator[str]:
    """Paths that are not the same in both; those whose names are not UTF-8 are never read."""
    for delta in before.diff_to_tree(after).deltas:
        try:
            yield delta.new_file.raw_path.decode()
        except UnicodeDecodeError:
            continue


def _is(signer: Signer, named: str) -> bool:
    if _FINGERPRINT.fullmatch(named):
        # The holder of a key chooses its names.
        return named in {signer.key, signer.key.partition(" ")[2]}
    return named == signer.name or signer.name.endswith(f"<{named}>")


@dataclass(frozen=True, slots=True)
class VerificationTask:
    """A revision to judge."""

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
    rules: tuple[SignerRule, ...] = ()
    """Who may sign what; with `every`."""


def verify_commit(path: Path, question: VerificationTask) -> Signer | None:
    """Return who signed the commit, or where it need not be signed, the tag, in the repository at `path`.

    Raises Stalled with the reason of a refusal, `DamagedRepositoryError`.
    """
    signer = None
    with report_damage():
        repository = open_repository(path)
        if not question.let_through and question.accepted not in {"", question.commit}:
            _require_descent(repository, question)
        if question.keys is not None and question.tag:
            signer = _tag_signer(repository, question, question.keys)
        if question.keys is not None and question.head:
            signer = _commit_signers(repository, question, question.keys)
    return signer


def _require_descent(repository: pygit2.Repository, question: VerificationTask) -> None:
    commit, accepted = question.commit, question.accepted
    if repository.is_shallow and (question.fast_forward or question.every):
        message = f"commit {commit} cannot be compared with {accepted}: the history of the repository is cut"
        raise Stalled(REWRITTEN, f"{message} (git fetch --unshallow mends that there)")
    if not question.fast_forward or (accepted in repository and repository.descendant_of(commit, accepted)):
        return
    older = accepted in repository and repository.descendant_of(accepted, commit)
    how = "is older than" if older else "does not descend from"
    raise Stalled(REWRITTEN, f"commit {commit} {how} commit {accepted}, which was accepted last")


def _tag_signer(repository: pygit2.Repository, question: VerificationTask, keys: Keys) -> Signer:
    short = question.tag.removeprefix(TAGS)
    oid = repository.lookup_reference(question.tag).target
    raw = _raw(repository, str(oid), ObjectType.TAG)
    if raw is None:
        raise Stalled(TAG_REFUSED, f"tag {short!r} is not annotated, so it is not signed")
    try:
        tag = read_tag(raw)
        if (tag.kind, tag.target, tag.name) != ("commit", question.commit, short):
            # A signed tag of another name, or of another commit, was put in its place.
            message = f"tag {short!r}: it says to be the tag {tag.name!r} of {tag.kind} {tag.target}"
            raise Stalled(TAG_REFUSED, message)
        return verify(tag.content, tag.signature, keys, tag.written)
    except NotJudgedError as error:
        raise Failed(NOT_VERIFIED, f"tag {short!r}: {error}") from error
    except (NotBelievedError, UnreadableObjectError) as error:
        raise Stalled(TAG_REFUSED, f"tag {short!r}: {error}") from error


def _commit_signers(repository: pygit2.Repository, question: VerificationTask, keys: Keys) -> Signer:
    since = _since(repository, question)
    signed = {commit: _commit_signer(repository, commit, keys) for commit in since or [question.commit]}
    if question.rules and since:
        why = not_allowed(repository, question.rules, question.accepted, signed)
        if why:
            raise Stalled(NOT_ALLOWED, f"commit {question.commit}: {why}")
    return signed[question.commit]


def _since(repository: pygit2.Repository, question: VerificationTask) -> list[str]:
    """Ids of the commits since the accepted one, the oldest first; none where they need not be signed."""
    if not question.every or question.let_through or question.accepted in {"", question.commit}:
        return []
    walk = repository.walk(question.commit, SortMode.TOPOLOGICAL)
    walk.hide(question.accepted)
    commits = []
    for commit in walk:
        commits.append(str(commit.id))
        if len(commits) > _MOST_COMMITS:
            message = f"more than {_MOST_COMMITS} commits since {question.accepted} would have to be verified"
            raise Stalled(LIMIT, message)
    return commits[::-1]


def _commit_signer(repository: pygit2.Repository, commit: str, keys: Keys) -> Signer:
    raw = _raw(repository, commit, ObjectType.COMMIT)
    if raw is None:
        raise Stalled(COMMIT_REFUSED, f"{commit} is no commit")
    try:
        read: SignedObject = read_commit(raw)
        return verify(read.content, read.signature, keys, read.written)
    except NotJudgedError as error:
        raise Failed(NOT_VERIFIED, f"commit {commit}: {error}") from error
    except (NotBelievedError, UnreadableObjectError) as error:
        raise Stalled(COMMIT_REFUSED, f"commit {commit} '{_subject(raw)}': {error}") from error


def _raw(repository: pygit2.Repository, oid: str, wanted: ObjectType) -> bytes | None:
    """An object's content; None where it is of another kind."""
    kind, size = repository.odb.read_header(oid)
    if ObjectType(kind) != wanted:
        return None
    if size > _MOST_BYTES:
        raise Stalled(LIMIT, f"{oid} has {size} bytes, more than {_MOST_BYTES}")
    return repository.odb.read(oid)[1]


def _subject(raw: bytes) -> str:
    line = raw.partition(b"\n\n")[2].strip().partition(b"\n")[0].decode("utf-8", "replace")
    return one_line(line, _SUBJECT)
