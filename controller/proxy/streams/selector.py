"""Selectors: a subscriber asks for an object by its name, for the object that has a flagSetId, or for what
is ordered for the pods that it belongs to. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from controller.delivery import standing_orders as orders
from controller.delivery.standing_orders import OrderedPods
from evaluator.http.messages import Code, RpcError

_SOURCE: Final = "source="
_FLAGD_PREFIX: Final = "core.openfeature.dev/"
_IDENTIFIER: Final = "flagSetId="
MOST_IDENTIFIER: Final = 512
"""Characters of a flagSetId."""
SYNTAX: Final = "write core.openfeature.dev/NAMESPACE/NAME, NAMESPACE/NAME or flagSetId=ID"


@dataclass(frozen=True, slots=True)
class Named:
    """The FeatureFlagConfiguration of this name, or the FeatureFlag if there is none, or else what the
    FlagSet of this name writes.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Identified:
    """The oldest object with this flagSetId, among those that the reader may read."""

    flag_set_id: str
    reader: str = ""
    """Identifies who may read the same objects as the subscriber; empty: everything may be read."""

    def __str__(self) -> str:
        return f"flagSetId={self.flag_set_id}"


Topic: TypeAlias = Named | Identified | OrderedPods


def parse(selector: str) -> Topic:
    """A selector in any form of OpenFeature Operator and flagd. Raises RpcError INVALID_ARGUMENT."""
    if not selector:
        raise _invalid(f"a selector is needed: {SYNTAX}")
    if selector.startswith(_IDENTIFIER):
        wanted = selector.removeprefix(_IDENTIFIER)
        if not wanted or len(wanted) > MOST_IDENTIFIER or not wanted.isprintable():
            raise _invalid(f"flagSetId must be 1 to {MOST_IDENTIFIER} printable characters")
        return Identified(wanted)
    if selector.startswith(orders.PREFIX):
        pods = OrderedPods.parse(selector)
        if pods is None:
            raise _invalid(f"not a selector of standing orders: write {orders.SYNTAX}")
        return pods
    path = selector.removeprefix(_SOURCE).removeprefix(_FLAGD_PREFIX)
    namespace, slash, name = path.partition("/")
    if not slash or not orders.NAMESPACE.fullmatch(namespace) or not orders.NAME.fullmatch(name):
        raise _invalid(f"not a selector of this proxy: {SYNTAX}")
    return Named(namespace, name)


def _invalid(message: str) -> RpcError:
    return RpcError(Code.INVALID_ARGUMENT, message)
