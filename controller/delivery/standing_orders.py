"""Standing orders: flag sets that pods follow beside their own, as labels and annotations name them. Pure.

An order names a FlagSet, FeatureFlagConfiguration or FeatureFlag. Of a pod, that of its Namespace comes
first, then that of its workload, then its own, then the workload's direct set; the later wins for each flag.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from controller.api.featureflagconfiguration import FLAG_KIND, KIND
from controller.api.flagset import KIND as FLAG_SET

if TYPE_CHECKING:
    from collections.abc import Mapping

FLAG_SETS: Final = (FLAG_SET, KIND, FLAG_KIND)
"""Kinds that the name of a flag set may mean; the first that has an object of the name is meant."""
ORDER: Final = "openfeature.dev/standing-orders"
"""An annotation of pods and workloads, and a label of Namespaces."""
ORDER_NAMESPACE: Final = "openfeature.dev/standing-orders-namespace"
SPELLINGS: Final = (
    (ORDER, ORDER_NAMESPACE),
    ("openfeature.agent/standing-orders-resource", "openfeature.agent/standing-orders-resource-namespace"),
    ("openfeature.io/standingorder", ""),
)
"""Annotations of the object's name and of its namespace: ours, then those of the proposal OFEP-001."""
ORDERS_LABEL: Final = "flagstaff.dev/orders"
"""The label by which proxies find the pods and workloads that may have orders; its value is `true`."""
DIRECT_SET: Final = "openfeature.dev/flags"
"""An annotation of workloads with flags of their own, which are made a FeatureFlagConfiguration."""
RECORD: Final = "flagstaff.dev/injected"
"""An annotation of injected pods, whose `flagSet` lists what their evaluator follows."""
PREFIX: Final = f"{ORDERS_LABEL}="
"""Of the selector by which evaluators ask for what is ordered for their pod."""
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
SYNTAX: Final = f"{PREFIX}NAMESPACE[/KIND/NAME][+NAMESPACE/NAME]"


class InvalidOrderError(ValueError):
    """An annotation or label is no order; the text says which and what to write."""


class Order(NamedTuple):
    """The object that is ordered."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class OrderedPods:
    """The pods that have the same orders. Its text is their selector at the proxy."""

    namespace: str
    kind: str = ""
    """Kind of the workload that the pods belong to; empty for pods without one."""
    name: str = ""
    """Name of the workload."""
    own: Order | None = None
    """The order that the pods themselves have."""

    def __str__(self) -> str:
        workload = f"/{self.kind}/{self.name}" if self.kind else ""
        own = f"+{self.own}" if self.own else ""
        return f"{PREFIX}{self.namespace}{workload}{own}"

    @classmethod
    def parse(cls, selector: str) -> Self | None:
        """Read a selector as `__str__` writes it; None for any other text."""
        workload, plus, ordered = selector.removeprefix(PREFIX).partition("+")
        namespace, *parts = workload.split("/")
        own = Order(*ordered.split("/", 1)) if "/" in ordered else None
        if not (selector.startswith(PREFIX) and NAMESPACE.fullmatch(namespace)) or bool(plus) != bool(own):
            return None
        if parts and not (len(parts) == 2 and _KIND.fullmatch(parts[0]) and NAME.fullmatch(parts[1])):
            return None
        if own and not (NAMESPACE.fullmatch(own.namespace) and NAME.fullmatch(own.name)):
            return None
        kind, name = parts or ("", "")
        return cls(namespace, kind, name, own)


class SetTitle(NamedTuple):
    """The name of a flag set."""

    kind: str
    """One of FLAG_SETS."""
    namespace: str
    name: str


def set_title(origin: str, namespace: str) -> SetTitle | None:
    """The flag set that pods of `namespace` know as `Kind/name` or `Kind/namespace/name`; None: none is."""
    kind, *place = origin.split("/")
    if kind not in FLAG_SETS or not 0 < len(place) <= 2 or not NAME.fullmatch(place[-1]):
        return None
    title = SetTitle(kind, place[0] if len(place) == 2 else namespace, place[-1])
    return title if NAMESPACE.fullmatch(title.namespace) else None


def asks_for_order(annotations: Mapping[str, Any]) -> bool:
    """Return whether any annotation names an order."""
    return any(name in annotations for name, _ in SPELLINGS)


def order_of(texts: Mapping[str, str], namespace: str) -> Order | None:
    """The order in the annotations of a pod or workload of `namespace`, or in the labels of this Namespace;
    None: there is none. Raises InvalidOrderError.
    """
    orders: dict[Order, str] = {}
    for key, place_key in SPELLINGS:
        if key not in texts:
            continue
        order = Order(texts.get(place_key, namespace), texts[key])
        if not NAME.fullmatch(order.name):
            raise InvalidOrderError(
                f"{key}: {order.name[:100]!r} is no object's name; write that of a FlagSet"
            )
        if not NAMESPACE.fullmatch(order.namespace):
            raise InvalidOrderError(
                f"{place_key}: {order.namespace[:100]!r} is no namespace; write the name of one"
            )
        orders[order] = key
    if len(orders) > 1:
        names = " and ".join(f"{key}: {order}" for order, key in orders.items())
        raise InvalidOrderError(f"{names} name different objects; remove one of them")
    return next(iter(orders), None)


def workload_of_pod(meta: Mapping[str, Any]) -> tuple[str, str]:
    """(kind, name) of the workload that a pod belongs to, by its metadata; empty for a pod without one."""
    listed = meta.get("ownerReferences")
    owners = [owner for owner in listed if isinstance(owner, dict)] if isinstance(listed, list) else []
    owner = next((owner for owner in owners if owner.get("controller")), {})
    kind, name = str(owner.get("kind", "")), str(owner.get("name", ""))
    if not (_KIND.fullmatch(kind) and NAME.fullmatch(name)):
        return "", ""
    # The name of a ReplicaSet contains its Deployment's: ReplicaSets need not be read.
    tail = f"-{(meta.get('labels') or {}).get('pod-template-hash', '')}"
    if kind == "ReplicaSet" and tail != "-" and name.endswith(tail):
        return "Deployment", name.removesuffix(tail)
    return kind, name
