"""The one way to evaluate: a query about a snapshot gives resolutions, and every observer sees each of them.
Pure.

The protocols of `evaluator.server` decode requests into queries and encode resolutions into responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from evaluator.flags.catalog import FLAG_SET_ID
from evaluator.flags.model import EMPTY, Json
from evaluator.resolving.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from evaluator.resolving.resolution import FlagType, Resolution
    from evaluator.store.snapshot import Snapshot


class Query:
    """A request for one flag or all flags of a snapshot, for one evaluation context."""

    __slots__ = ("_context", "_read", "key", "now", "snapshot", "wanted")

    def __init__(
        self,
        snapshot: Snapshot,
        key: str | None,
        wanted: FlagType | None,
        read: Callable[[], Mapping[str, Json]],
        now: int,
    ) -> None:
        """key: None asks for every flag. wanted: None takes a value of any type. now: Unix seconds. read:
        decodes the context; called at most once, and only if a rule or an observer needs it.
        """
        self.snapshot = snapshot
        self.key = key
        self.wanted = wanted
        self.now = now
        self._read = read
        self._context: Mapping[str, Json] | None = None

    @property
    def context(self) -> Mapping[str, Json]:
        """The evaluation context; raises what decoding it raises."""
        if self._context is None:
            self._context = self._read()
        return self._context

    def flag_set_id(self, resolution: Resolution) -> str | None:
        """Return the `flagSetId` of the flag that was evaluated."""
        set_id = resolution.metadata.get(FLAG_SET_ID)
        return set_id if isinstance(set_id, str) else self.snapshot.flag_set.flag_set_id


Observer: TypeAlias = "Callable[[Query, str, Resolution], None]"
"""(query, flag key, resolution): called with every evaluation before it is answered; must not raise."""


def evaluate(query: Query, observers: Sequence[Observer] = ()) -> Resolution:
    """Evaluate the flag that `query` names. Raises only what decoding the context raises."""
    key, flags = query.key, query.snapshot.compiled
    if key is None:
        raise ValueError("the query asks for every flag")
    # Decoding the context is most of a request's cost, and most flags answer every context alike.
    flag = flags.compiled.get(key)
    if flag is None:
        resolution = resolve(flags, key, query.wanted, query.context, query.now)
    else:
        context = EMPTY if flag.run is None else query.context
        resolution = flag.resolve(query.wanted, context, query.now)
    for observe in observers:
        observe(query, key, resolution)
    return resolution


def evaluate_all(
    query: Query, observers: Sequence[Observer] = (), *, typed: bool = False
) -> Iterator[tuple[str, Resolution]]:
    """Evaluate every flag in key order, each when the caller asks for the next one, disabled and failing
    flags too. typed: evaluate each flag as the type of its default variant, and leave out those without a
    type.
    """
    snapshot, context, now = query.snapshot, query.context, query.now
    flags = snapshot.compiled
    for key, wanted in snapshot.typed_keys if typed else snapshot.keys:
        resolution = resolve(flags, key, wanted, context, now)
        for observe in observers:
            observe(query, key, resolution)
        yield key, resolution
