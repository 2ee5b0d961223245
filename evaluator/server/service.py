"""Shared by all protocols of evaluation: from a request's selector, headers and context to resolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from evaluator.http.messages import Code, Headers, RpcError, header
from evaluator.server.context import Context, ContextSources
from evaluator.store.query import Observer, Query, evaluate, evaluate_all
from evaluator.store.snapshot import NO_FLAGS, SelectorKey, Snapshot
from evaluator.store.store import Store
from evaluator.wire.sync_messages import SELECTOR_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evaluator.resolving.resolution import FlagType, Resolution


_FLAG_SET_ID: Final = "flagSetId"
_SOURCE: Final = "source"
_KEYS: Final[Mapping[str, SelectorKey]] = {_FLAG_SET_ID: _FLAG_SET_ID, _SOURCE: _SOURCE}


class InvalidSelectorError(RpcError):
    """The selector names a key that flagd does not know; the text is flagd's. INVALID_ARGUMENT to RPCs."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.INVALID_ARGUMENT, message)


@dataclass(frozen=True, slots=True)
class Selection:
    """One selector, parsed. Without key and value it selects everything."""

    key: SelectorKey | Literal[""] = ""
    value: str = ""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The selector as bulk answers reflect it."""
        return {self.key: self.value} if self.key else {}

    def of(self, store: Store) -> Snapshot | None:
        """Return the selected part of what is served; None if nothing has that name."""
        return store.view(self.key, self.value) if self.key else store.snapshot


EVERYTHING: Final = Selection()


def selection(headers: Headers) -> Selection:
    """Return the selection in `headers`; raises InvalidSelectorError."""
    text = header(headers, SELECTOR_HEADER)
    return parse(text) if text else EVERYTHING


def parse(text: str | None) -> Selection:
    """Parse a selector. A bare value is a source; raises InvalidSelectorError."""
    if not text:
        return EVERYTHING
    key, equals, value = text.partition("=")
    if not equals:
        return Selection(_SOURCE, text)
    if key not in _KEYS:
        raise InvalidSelectorError(f'invalid selector key "{key}", valid keys: "{_FLAG_SET_ID}", "{_SOURCE}"')
    return Selection(_KEYS[key], value)


NOT_READY: Final = "no flags are known yet: no source has delivered, and there is no last good flag set"
RETRY_SECONDS: Final = 1
"""Seconds after which a client that got NOT_READY should ask again."""

_AT_ONCE: Final = 16_384
"""Bytes of a request for one flag that are answered within the call; beyond, others are answered in between.
"""
_FLAG_BYTES: Final = 64
"""Cost of one more flag, in bytes of a request."""
_SHORT: Final = 1_024
"""Bytes of a request whose context is too small for lists that a rule evaluates slowly."""


class NotReadyError(RpcError):
    """No source has delivered yet: UNAVAILABLE to RPCs."""

    def __init__(self) -> None:
        super().__init__(Code.UNAVAILABLE, NOT_READY)


@dataclass(frozen=True, slots=True)
class EvaluationService:
    """Evaluates what requests ask for, from what the store serves at that moment."""

    store: Store
    sources: ContextSources
    clock: Callable[[], float]
    """Unix seconds."""
    observers: Sequence[Observer] = ()

    def select(self, selected: Selection) -> Snapshot:
        """The flags that a request is about; raises NotReadyError."""
        snapshot = selected.of(self.store)
        if snapshot is not None:
            return snapshot
        if not self.store.known:
            raise NotReadyError
        return NO_FLAGS

    def snapshot_for(self, headers: Headers) -> Snapshot:
        """The flags that a request is about; raises NotReadyError, InvalidSelectorError."""
        # Hardly any request selects.
        if header(headers, SELECTOR_HEADER) is None and (snapshot := self.store.snapshot) is not None:
            return snapshot
        return self.select(selection(headers))

    def evaluate(
        self,
        snapshot: Snapshot,
        headers: Headers,
        key: str,
        read: Callable[[], Context],
        wanted: FlagType | None = None,
    ) -> Resolution:
        """Evaluate one flag; `read` decodes the context that the client sent. Raises what `read` raises."""
        if self.sources.values or self.sources.headers:
            read = partial(self._complete, read, headers)
        return evaluate(Query(snapshot, key, wanted, read, int(self.clock())), self.observers)

    def evaluate_all(
        self, snapshot: Snapshot, headers: Headers, context: Context, *, typed: bool = False
    ) -> Iterator[tuple[str, Resolution]]:
        """Every flag, each when the caller asks for the next one; `typed` as in `served.evaluate`."""
        complete = self.complete(context, headers)
        query = Query(snapshot, None, None, lambda: complete, int(self.clock()))
        return evaluate_all(query, self.observers, typed=typed)

    def complete(self, context: Context, headers: Headers) -> Context:
        """Add what the operator adds to each context, in place, and return it."""
        return self.sources.lay_over(context, headers)

    def _complete(self, read: Callable[[], Context], headers: Headers) -> Context:
        return self.complete(read(), headers)


def is_large(message: bytes, flags: int = 1) -> bool:
    """Whether a request about so many flags takes some milliseconds, so that it must be deferred."""
    return (len(message) + _FLAG_BYTES) * flags > _AT_ONCE


def flags_per_step(message: bytes) -> int:
    """Return how many flags of a bulk answer are evaluated before other requests have their turn."""
    return 16 if len(message) <= _SHORT else 1
