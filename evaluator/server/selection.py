"""`flagd-selector`: selects the flags of a request (https://flagd.dev/reference/selector-syntax/)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from evaluator.http.messages import Code, RpcError, header
from evaluator.wire.sync_messages import SELECTOR_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.http.messages import Headers
    from evaluator.store.store import SelectorKey, Snapshot, Store

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
