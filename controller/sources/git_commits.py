"""Verifies a commit of a repository on this machine, and writes its files below one folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

import pygit2
from pygit2.enums import FileMode, ObjectType

from controller.api.meta import AUTHOR, COMMITTED_AT, SUBJECT, lets_through
from controller.api.references import TAG_MODES, is_older
from controller.artifacts.archive import too_large
from controller.runtime.plain_text import one_line
from controller.runtime.secret_texts import SecretTexts
from controller.runtime.setbacks import Failed, Stalled
from controller.sources.backend import (
    NOTHING_ACCEPTED,
    AcceptedRevision,
    Fetched,
    Revision,
    Signer,
    TreeLimits,
    Unverified,
    with_signer,
)
from controller.sources.commit_verification import (
    LIMIT,
    NOT_ALLOWED,
    REWRITTEN,
    TAG_REFUSED,
    SignerRule,
    VerificationTask,
    verify_commit,
)
from controller.sources.git_references import Reference
from controller.sources.git_repository import open_repository, report_damage
from controller.sources.secrets import OF_OPTIONS, TrustAdvice, on_command_line
from controller.sources.signing_keys import Keys, epoch, read_keys
from controller.sources.source_files import create_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from controller.sources.deadline import LimitedTasks, ThreadTasks


_HEADS: Final = ("HEAD", "TagAndHEAD", "EveryCommit")


@dataclass(frozen=True, slots=True)
class SignaturePolicy:
    """The trusted keys, and what they must have signed."""

    advice: TrustAdvice
    mode: str = ""
    """As `spec.verify.mode`; empty: nothing need be signed."""
    keys: Keys | None = None
    epoch: str = ""
    rules: tuple[SignerRule, ...] = ()

    async def verify(
        self,
        tasks: LimitedTasks | ThreadTasks,
        path: Path,
        reference: Reference,
        revision: Revision,
        accepted: AcceptedRevision,
    ) -> Signer | None:
        """Return who signed `revision` of the repository at `path`, if anybody must. Raises Unverified, or
        Stalled (HistoryRewritten), and as `verify_commit` does.
        """
        question = self._question(reference, revision, accepted)
        try:
            return await tasks.run(f"verifying commit {question.commit}", verify_commit, path, question)
        except Stalled as refused:
            if refused.reason == REWRITTEN:
                raise self._rewrite_refusal(refused.message, question.commit) from None
            # What is too much for these keys and rules is not too much for others that read the mirror.
            advice = self._advice(refused.reason, question.commit)
            raise Unverified(refused.reason, f"{refused.message}{advice}") from refused

    def _question(
        self, reference: Reference, revision: Revision, accepted: AcceptedRevision
    ) -> VerificationTask:
        commit = revision.digest.removeprefix("sha1:")
        name, _, before = accepted.revision.rpartition("@")
        let_through = lets_through(accepted.let_through, str(revision))
        anywhere = False
        if reference.follows_versions and name and name != revision.name and not let_through:
            if is_older(revision.name, name):
                message = f"version {revision.name} is older than {name}, which was accepted last"
                raise self._rewrite_refusal(message, commit)
            # Versions are ordered by their numbers: a later one may come from another branch. But the name of
            # a tag that is not verified is anybody's who may push.
            anywhere = self.keys is None or self.mode in TAG_MODES
        return VerificationTask(
            commit,
            (reference.full_name(revision) or "") if self.mode in TAG_MODES else "",
            before.removeprefix("sha1:"),
            let_through=let_through,
            fast_forward=not anywhere,
            head=self.mode in _HEADS,
            every=self.mode == "EveryCommit",
            keys=self.keys,
            rules=self.rules,
        )

    def _rewrite_refusal(self, message: str, commit: str) -> Stalled:
        return Stalled(REWRITTEN, f"{message}; to accept it: {self.advice.accept}{commit}")

    def _advice(self, reason: str, commit: str) -> str:
        if reason == LIMIT:
            alone = self.mode == "EveryCommit"
            return f"; to accept it without those before it: {self.advice.accept}{commit}" if alone else ""
        if reason == NOT_ALLOWED:
            return (
                "; have them sign a commit or a merge that makes it so, or revert it; see spec.verify.rules"
            )
        how = "git tag -s" if reason == TAG_REFUSED else "git commit -S"
        return f"; sign it with a trusted key ({how}), or {self.advice.add_key}"


def policy_of_keys(content: Mapping[str, bytes]) -> SignaturePolicy:
    """Trusts the keys of a command line, by their files' names, for the newest commit. Raises Stalled."""
    keys = read_keys(SecretTexts(OF_OPTIONS, content))
    return SignaturePolicy(on_command_line(keys.names), "HEAD", keys, epoch({"mode": "HEAD"}, content))


_LAST_SECOND = 253_402_300_799  # of the year 9999, the last a datetime can hold
_LONGEST_TEXT: Final = 500
"""Characters of an author or a subject, which terminals show."""
_SHOWN_SUBJECT: Final = 50
"""Characters."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """Which files of which commit to write, and where."""

    revision: Revision
    into: Path
    """An empty folder."""
    limits: TreeLimits = field(default_factory=TreeLimits)
    paths: tuple[str, ...] = ()
    """Files, folders and globs; what none of them could match is not written. Empty: all."""


def read_tree(path: Path, checkout: Checkout) -> Fetched:
    """`write_commit` of the repository at `path`; runs in a helper, which sends no error of a library.

    Raises Setback, `DamagedRepositoryError`, `UnreadableFormatError` and MemoryError.
    """
    with report_damage():
        return write_commit(open_repository(path), checkout)


def fixed_prefixes(paths: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The folders (as parts) with everything that `paths` (files, folders, globs) could match."""
    prefixes = []
    for path in paths:
        parts: list[str] = []
        for part in path.split("/"):
            if any(mark in part for mark in "*?["):
                break
            if part not in {"", "."}:
                parts.append(part)
        prefixes.append(tuple(parts))
    return tuple(prefixes)


def write_commit(repository: pygit2.Repository, checkout: Checkout) -> Fetched:
    """Write the files of a commit.

    Raises `Stalled` for a limit, an unsafe name, or what is no commit; one of `DAMAGE` where an object is
    missing or broken; `Failed` where the revision is not there or the folder cannot be written.
    """
    revision, limits = checkout.revision, checkout.limits
    oid = pygit2.Oid(hex=revision.digest.removeprefix("sha1:"))
    if oid not in repository:
        raise Failed("RevisionGone", f"{revision} is not, or no longer, in the repository")
    if (kind := _type_of(repository, oid, limits, "the commit")) != ObjectType.COMMIT:
        message = f"{revision} is a {kind.name.lower()}, not a commit"
        raise Stalled("InvalidReference", message)
    commit = cast("pygit2.Commit", repository[oid])
    writing = _Writing(repository, checkout.into, limits, fixed_prefixes(checkout.paths))
    try:
        writing.folder(commit.tree_id, ())
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        message = f"the files of {revision} could not be written{where}: {error.strerror or error}"
        raise Failed("StorageOperationFailed", message) from error
    return _describe(commit, revision, writing)


def skipped_submodule(path: str) -> str:
    """The entry of `Fetched.skipped` for a submodule."""
    return f"{path}: submodule, not read"


@dataclass(slots=True)
class _Writing:
    repository: pygit2.Repository
    into: Path
    limits: TreeLimits
    prefixes: tuple[tuple[str, ...], ...]
    skipped: list[str] = field(default_factory=list)
    submodules: list[tuple[str, str]] = field(default_factory=list)
    entries: int = 0
    size: int = 0

    def folder(self, oid: pygit2.Oid, parts: tuple[str, ...]) -> None:
        if len(parts) > self.limits.depth:
            raise _limit(f"{'/'.join(parts)}: more than {self.limits.depth} folders deep")
        shown = "/".join(parts) or "/"
        if _type_of(self.repository, oid, self.limits, f"the folder {shown}") != ObjectType.TREE:
            raise ValueError(f"{shown}: listed as a folder, but is not one")
        made = False
        for entry in cast("pygit2.Tree", self.repository[oid]):
            child = self._child_of(entry.raw_name, parts)
            if child is None or not self._may_match(child, folder=entry.filemode == FileMode.TREE):
                continue
            self._count()
            if entry.filemode == FileMode.TREE:
                self.folder(entry.id, child)
            elif entry.filemode == FileMode.COMMIT:
                self.submodules.append(("/".join(child), str(entry.id)))
                self.skipped.append(skipped_submodule("/".join(child)))
            elif entry.filemode == FileMode.LINK:
                self.skipped.append(f"{'/'.join(child)}: symlink, not followed")
            else:
                if not made:
                    self.into.joinpath(*parts).mkdir(parents=True, exist_ok=True)
                    made = True
                self._file(entry.id, child)

    def _child_of(self, raw: bytes | None, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        raw = raw or b""
        shown = "/".join((*parts, raw.decode("utf-8", "backslashreplace")))
        if raw.lower() in {b"", b".", b"..", b".git"} or b"/" in raw or b"\0" in raw:
            raise Stalled("UnsafePath", f"{shown}: a file cannot have this name")
        try:
            return (*parts, raw.decode("utf-8"))
        except UnicodeDecodeError:
            self._count()
            self.skipped.append(f"{shown}: its name is not UTF-8")
            return None

    def _may_match(self, child: tuple[str, ...], *, folder: bool) -> bool:
        if not self.prefixes:
            return True
        return any(
            child[: len(prefix)] == prefix or (folder and prefix[: len(child)] == child)
            for prefix in self.prefixes
        )

    def _count(self) -> None:
        # Folders count too: a tree of empty folders that share their listings is exponential for free.
        self.entries += 1
        if self.entries > self.limits.entries:
            raise _limit(f"the tree has more than {self.limits.entries} files and folders")

    def _file(self, oid: pygit2.Oid, child: tuple[str, ...]) -> None:
        shown = "/".join(child)
        kind, size = self.repository.odb.read_header(oid)
        self.size += size
        if self.size > self.limits.total_bytes:
            raise _limit(f"{shown}: with it the tree has more than {self.limits.total_bytes} bytes")
        if size > self.limits.file_bytes:
            self.skipped.append(too_large(shown, size, self.limits.file_bytes))
            return
        if kind != ObjectType.BLOB:
            raise ValueError(f"{shown}: listed as a file, but is not one")
        _, content = self.repository.odb.read(oid)
        with create_file(self.into.joinpath(*child)) as file:
            file.write(content)


def _type_of(repository: pygit2.Repository, oid: pygit2.Oid, limits: TreeLimits, item: str) -> ObjectType:
    kind, size = repository.odb.read_header(oid)
    if size > limits.listing_bytes:
        raise _limit(f"{item} takes {size} bytes, more than {limits.listing_bytes}")
    return ObjectType(kind)


def _limit(message: str) -> Stalled:
    return Stalled("LimitExceeded", message)


def _describe(commit: pygit2.Commit, revision: Revision, writing: _Writing) -> Fetched:
    name = (commit.author.raw_name or b"").decode("utf-8", "replace")
    mail = (commit.author.raw_email or b"").decode("utf-8", "replace")
    author = one_line(f"{name} <{mail}>", _LONGEST_TEXT)
    subject = one_line(
        commit.raw_message.decode("utf-8", "replace").strip().partition("\n")[0], _LONGEST_TEXT
    )
    seconds = min(max(commit.commit_time, 0), _LAST_SECOND)
    return Fetched(
        revision,
        {AUTHOR: author, COMMITTED_AT: datetime.fromtimestamp(seconds, UTC).isoformat(), SUBJECT: subject},
        f"commit '{subject[:_SHOWN_SUBJECT]}' of {author}",
        tuple(writing.skipped),
        tuple(writing.submodules),
    )


def without_author(fetched: Fetched) -> Fetched:
    """The same without the name and the address of the commit's author."""
    metadata = {name: text for name, text in fetched.metadata.items() if name != AUTHOR}
    summary = f"commit '{metadata.get(SUBJECT, '')[:_SHOWN_SUBJECT]}'"
    return replace(fetched, metadata=metadata, summary=summary)


@dataclass(frozen=True, slots=True)
class CommitReader:
    """What a commit must satisfy before its files are written, and where that work runs."""

    tasks: LimitedTasks | ThreadTasks
    """Helpers for what strangers wrote; threads for what the user of a command line named."""
    policy: SignaturePolicy | None = None
    """None: nothing need be signed."""
    reference: Reference = field(default_factory=Reference)
    """What is followed; some policies depend on it."""
    accepted: AcceptedRevision = NOTHING_ACCEPTED
    authors: bool = True
    """Whether the result names the commit's author and signer."""

    async def read(self, repository: Path, checkout: Checkout) -> Fetched:
        """Verify the commit, then write its files. Raises Setback, and as `read_tree` does."""
        signer = None
        if self.policy is not None:
            signer = await self.policy.verify(
                self.tasks, repository, self.reference, checkout.revision, self.accepted
            )
        fetched = await self.tasks.run(f"reading {checkout.revision}", read_tree, repository, checkout)
        if not self.authors:
            fetched = without_author(fetched)
        return with_signer(fetched, signer, named=self.authors)
