"""What a source says, put into a store at once, without a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evaluator.store.store import Content, Fault, Report

if TYPE_CHECKING:
    from evaluator.flags.model import FlagSet
    from evaluator.store.snapshot import Snapshot
    from evaluator.store.store import Store


def swap(
    store: Store, flag_set: FlagSet, *, now: float, source: str | None = None, content: str | None = None
) -> Snapshot:
    """The source delivered `flag_set`, whose digest is `content`; a store's only source needs no name."""
    snapshot = store.apply(Report(_name_of(store, source), now, Content(flag_set, content)), now=now)
    assert snapshot is not None
    return snapshot


def fail(store: Store, reason: str, at: float, source: str | None = None, *, cause: str = "") -> None:
    """The source cannot be read."""
    store.apply(Report(_name_of(store, source), at, fault=Fault(reason, cause)), now=at)


def confirm(store: Store, at: float, source: str | None = None) -> None:
    """The source has what it had."""
    store.apply(Report(_name_of(store, source), at), now=at)


def _name_of(store: Store, source: str | None) -> str:
    if source is not None:
        return source
    (only,) = store.statuses
    return only.name
