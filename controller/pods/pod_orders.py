"""The standing orders of a pod or workload, and the selector by which evaluators ask for them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.delivery.standing_orders import (
    FLAG_SETS,
    ORDER,
    ORDERS_LABEL,
    InvalidOrderError,
    Order,
    OrderedPods,
    asks_for_order,
    order_of,
    workload_of_pod,
)
from controller.pods.installation import INJECTED, Known, NotThere, PodRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MARKED: Final = "true"
"""The value of ORDERS_LABEL."""
_KEPT_KINDS: Final = frozenset({"Pod", "ReplicaSet"})
"""Kinds of manifests with pods that are no workload with orders of its own."""


class Surroundings(NamedTuple):
    """What the orders of a pod depend on beside the pod."""

    namespace_labels: Mapping[str, str] | None = None
    """Labels of the pod's Namespace, if that has an order; empty: not known yet; None: it has none."""
    workload: tuple[str, str] = ("", "")
    """(kind, name) of the workload whose template the pod is; empty: the owner of the pod."""


ALONE: Final = Surroundings()


def is_ordered(meta: Mapping[str, Any], around: Surroundings) -> bool:
    """Return whether a pod with this metadata follows standing orders, its own or others'."""
    annotations, labels = meta.get("annotations"), meta.get("labels")
    marked = isinstance(labels, dict) and labels.get(ORDERS_LABEL) == MARKED
    texts = annotations if isinstance(annotations, dict) else {}
    inherits = around.namespace_labels is not None
    if around.namespace_labels == {} and INJECTED in texts:
        # By the webhook for pods that ask, which did not know of the Namespace's order either.
        inherits = False
    return inherits or marked or asks_for_order(texts)


def orders_selector(meta: Mapping[str, Any], namespace: str, known: Known, around: Surroundings) -> str:
    """The selector for a pod of `namespace`; empty where it follows no orders. Raises Refused for an order
    that is known to be impossible.
    """
    if not is_ordered(meta, around):
        return ""
    own = read_order(meta.get("annotations") or {}, namespace, "annotation")
    inherited = read_order(around.namespace_labels or {}, namespace, "label")
    require_orders([inherited, own], namespace, known)
    kind, name = around.workload if around.workload[0] else workload_of_pod(meta)
    workload = ("", "") if kind in _KEPT_KINDS else (kind, name)
    return str(OrderedPods(namespace, *workload, own=None if own is None else own.order))


class PlacedOrder(NamedTuple):
    """An order, and where it stands."""

    order: Order
    where: str
    """How messages begin: `annotation …`."""


def read_order(texts: Mapping[str, str], namespace: str, noun: str) -> PlacedOrder | None:
    """The order in annotations or labels, which messages call `noun`; None: there is none. Raises Refused."""
    try:
        order = order_of(texts, namespace)
    except InvalidOrderError as error:
        raise PodRefused(f"{noun} {error}") from None
    of_namespace = f" of Namespace {namespace}" if noun == "label" else ""
    return None if order is None else PlacedOrder(order, f"{noun} {ORDER}{of_namespace}")


def require_orders(orders: Sequence[PlacedOrder | None], namespace: str, known: Known) -> None:
    """Raise Refused unless pods of `namespace` can follow all these orders."""
    names: dict[str, tuple[Order, str]] = {}
    for order, where in filter(None, orders):
        kinds: Sequence[str] = FLAG_SETS
        if order.namespace != namespace:
            kinds = _granted_kinds(order, where, namespace, known)
        try:
            flag_set = known.flag_set(order.namespace, order.name, kinds)
        except NotThere as absence:
            raise PodRefused(f"{where}: {absence}") from None
        wanted, shown = flag_set.flag_set_id, flag_set.source or str(order)
        other, shown_other = names.setdefault(wanted, (order, shown))
        if wanted and other != order and shown != shown_other:
            raise PodRefused(
                f"{where}: {shown} and {shown_other} are ordered for the same pods and have the flagSetId "
                f"{wanted!r} both; give one of them another, or remove one of the orders"
            )


def _granted_kinds(order: Order, where: str, namespace: str, known: Known) -> Sequence[str]:
    try:
        kinds, warning = known.refer(namespace, FLAG_SETS, order.namespace, order.name)
    except PodRefused as refusal:
        raise PodRefused(f"{where}: {refusal}") from None
    if warning:
        raise PodRefused(f"{where}: {warning}, but not of standing orders, which the proxy checks by itself")
    return kinds
