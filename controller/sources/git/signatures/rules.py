"""Who may sign what: signers that a rule names must have brought the content of its paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pygit2
from pathspec import GitIgnoreSpec

from controller.runtime.user_text.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.sources.verification.signer import Signer


_FINGERPRINT: Final = re.compile(r"(SSH |PGP )?(SHA256:\S+|[0-9A-F]{40,64})")


@dataclass(frozen=True, slots=True)
class Group:
    """Signers, of which a number is enough."""

    signers: tuple[str, ...]
    """Names, mail addresses, or fingerprints of keys."""
    count: int = 1

    def satisfied(self, found: list[Signer]) -> bool:
        """Whether enough of `found` belong to it; keys of one name are one person."""
        people = {each.name or each.key for each in found if any(_is(each, named) for named in self.signers)}
        return len(people) >= self.count

    def __str__(self) -> str:
        return f"{self.count} of {', '.join(self.signers)}"


@dataclass(frozen=True, slots=True)
class Rule:
    """The signers that some paths need."""

    paths: tuple[str, ...]
    """Patterns as in `.gitignore`."""
    any_of: tuple[Group, ...]
    """One group is enough."""
    merges: bool = False
    """Whether who merges signs for all that the merge brings to its first parent."""

    @property
    def pattern(self) -> GitIgnoreSpec:
        """Raises ValueError, or an error of RE2's, for a path that is no pattern."""
        return GitIgnoreSpec.from_lines(self.paths, backend="re2")


def not_allowed(
    repository: pygit2.Repository,
    rules: tuple[Rule, ...],
    accepted: str,
    signed: Mapping[str, Signer],
) -> str:
    """The path that was changed since `accepted` without the signers it needs; empty: none was. `signed`: the
    signers of all commits since then by commit id, the newest last.
    """
    commits = [repository[oid].peel(pygit2.Commit) for oid in signed]
    if not commits:
        return ""
    before, tip = repository[accepted].peel(pygit2.Commit).tree, commits[-1].tree
    changed = list(_changed(before, tip))
    for rule in rules:
        pattern = rule.pattern
        for path in filter(pattern.match_file, changed):
            wanted = _entry(tip, path)
            found = [signed[str(each.id)] for each in commits if _brings(each, path, wanted, rule.merges)]
            if not any(group.satisfied(found) for group in rule.any_of):
                who = ", ".join(str(each) for each in found) or "no signed commit that introduces it"
                needed = " or ".join(map(str, rule.any_of))
                return f"{one_line(path, 200)} was changed by {who}; it needs {needed}"
    return ""


def _brings(commit: pygit2.Commit, path: str, wanted: object, merges: bool) -> bool:
    """Whether a commit brings what is at a path: its parents, with `merges` the first one, have it not."""
    parents = commit.parents[:1] if merges else commit.parents
    before = [_entry(each.tree, path) for each in parents] or [None]
    return _entry(commit.tree, path) == wanted and wanted not in before


def _entry(tree: pygit2.Tree, path: str) -> object:
    """What identifies the content at a path; None: there is nothing."""
    try:
        found = tree[path]
    except KeyError:
        return None
    return found.id, found.filemode


def _changed(before: pygit2.Tree, after: pygit2.Tree) -> Iterator[str]:
    """Paths that are not the same in both; those whose names are not UTF-8 are never read."""
    for delta in before.diff_to_tree(after).deltas:
        try:
            yield delta.new_file.raw_path.decode()
        except UnicodeDecodeError:
            continue


def _is(signer: Signer, named: str) -> bool:
    if _FINGERPRINT.fullmatch(named):
        # Names are chosen by who has the key.
        return named in {signer.key, signer.key.partition(" ")[2]}
    return named == signer.name or signer.name.endswith(f"<{named}>")
