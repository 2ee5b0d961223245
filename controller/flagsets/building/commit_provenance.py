"""Metadata about where content came from, which only the controller may write. Pure."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from evaluator.flags.model import (
    AUTHOR_KEY,
    BUCKETING_KEY,
    COMMITTED_AT_KEY,
    DIGEST_KEY,
    PROVENANCE_PREFIX,
    REVISION_KEY,
    VERIFIED_BY_KEY,
    Bucketing,
)
from evaluator.flags.syntax.problems import Problem, Severity
from evaluator.flags.syntax.text import json_path

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from evaluator.flags.layers.layer import Layer
    from evaluator.flags.model import FlagSet, Path, Scalar
    from evaluator.flags.syntax.problems import Document

PLACES: Final = (REVISION_KEY, AUTHOR_KEY, COMMITTED_AT_KEY, VERIFIED_BY_KEY, DIGEST_KEY)

_MAX_TEXT: Final = 1024
"""Characters."""


class ProvenanceDetail(StrEnum):
    """How much metadata of a commit is delivered with its flags."""

    FULL = "full"
    COMMIT = "commit"
    """The revision and its time; neither the author's name nor address."""


def provenance_of(
    revision: str, author: str = "", committed_at: str = "", verified_by: str = ""
) -> dict[str, Scalar]:
    """The set metadata of `revision` (`main@sha1:…`): author (`Name <mail>`), time (RFC 3339), signer."""
    known = {
        REVISION_KEY: revision,
        AUTHOR_KEY: author,
        COMMITTED_AT_KEY: committed_at,
        VERIFIED_BY_KEY: verified_by,
    }
    # Commits hold what bytes they like; metadata travels with every answer, as Unicode.
    return {key: text[:_MAX_TEXT].encode(errors="replace").decode() for key, text in known.items() if text}


def without_author(flag_set: FlagSet) -> FlagSet:
    """The set without the names of people."""
    names = {AUTHOR_KEY, VERIFIED_BY_KEY}
    if names.isdisjoint(flag_set.metadata):
        return flag_set
    return replace(flag_set, metadata=_without(flag_set.metadata, names))


def without_forgeries(flag_set: FlagSet, layers: Sequence[Layer]) -> tuple[FlagSet, list[Problem]]:
    """The set without keys that we alone write, and a warning for each, in the uppermost of `layers`."""
    pinned = flag_set.metadata.get(BUCKETING_KEY) in set(Bucketing)
    in_set = [key for key in _reserved_keys(flag_set.metadata) if key != BUCKETING_KEY or not pinned]
    problems = [_problem(layers, None, key) for key in in_set]
    flags = dict(flag_set.flags)
    for name, flag in flag_set.flags.items():
        if forged := _reserved_keys(flag.metadata):
            flags[name] = replace(flag, metadata=_without(flag.metadata, forged))
            problems += [_problem(layers, name, key) for key in forged]
    if not problems:
        return flag_set, []
    metadata = _without(flag_set.metadata, in_set)
    return replace(flag_set, flags=MappingProxyType(flags), metadata=metadata), problems


def _reserved_keys(metadata: Mapping[str, Scalar]) -> list[str]:
    return sorted(key for key in metadata if key.startswith(PROVENANCE_PREFIX))


def _without(metadata: Mapping[str, Scalar], names: Collection[str]) -> Mapping[str, Scalar]:
    return MappingProxyType({key: value for key, value in metadata.items() if key not in names})


def _problem(layers: Sequence[Layer], flag: str | None, key: str) -> Problem:
    document, path = _place(layers, flag, key)
    line, column = document.place(path, key=True)
    message = f'"{key}" is written by Flagstaff alone and is left out; take it out of the metadata'
    if key == BUCKETING_KEY:
        message = f'"{key}" is left out; write "v2" or "v3", and in the set\'s metadata only'
    return Problem(
        document.file, line, column, Severity.WARNING, "reserved-key", message, json_path(path), flag
    )  # fmt: skip


def _place(layers: Sequence[Layer], flag: str | None, key: str) -> tuple[Document, Path]:
    for layer in reversed(layers):
        if flag is None:
            if key in layer.metadata:
                piece = layer.metadata[key]
                return piece.document, piece.path
        elif flag in layer.flags:
            piece = layer.flags[flag]
            if isinstance(piece.value, dict) and key in (piece.value.get("metadata") or {}):
                return piece.document, (*piece.path, "metadata", key)
    raise LookupError(f"no layer has {key}")
