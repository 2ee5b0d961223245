"""Finds the flag sets that pods follow by their standing orders. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api import flagset
from controller.api.openfeature.featureflagconfiguration import KIND
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.delivery.standing_orders import DIRECT_SET, FLAG_SETS, ORDER, InvalidOrderError, order_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from controller.api.objects.meta import Resource
    from controller.delivery.claim import Place
    from controller.delivery.standing_orders import Order, OrderedPods, SetTitle
    from controller.proxy.catalog import Catalog
    from controller.proxy.orders.order_objects import OrderObjects

INVALID: Final = "OrderInvalid"
UNKNOWN: Final = "OrderUnknown"
NOT_GRANTED: Final = "OrderNotGranted"
CONFLICT: Final = "OrdersConflict"
NOT_READY: Final = "DirectSetMissing"


BY_NAMESPACE: Final = "namespace"
BY_WORKLOAD: Final = "workload"
BY_POD: Final = "pod"
BY_DIRECT_SET: Final = "direct-set"
PRECEDENCE: Final = (BY_NAMESPACE, BY_WORKLOAD, BY_POD, BY_DIRECT_SET)
"""What asks for a flag set of a pod; of two sets, the one that a later of these asks for wins."""


class OrderedSet(NamedTuple):
    """One of the flag sets that pods follow."""

    order: str
    """One of PRECEDENCE."""
    place: Place
    """Where the proxy finds its content."""
    origin: str
    """`Kind/name` of the object that users know; of another namespace `Kind/namespace/name`."""


@dataclass(frozen=True, slots=True)
class OrderProblem:
    """Why pods are not sent one of the flag sets that they should follow."""

    order: str
    """One of PRECEDENCE."""
    reason: str
    """One of the reasons above, or why an object cannot be delivered."""
    message: str
    """Text that says what to do."""
    about: Resource | None = None
    """The workload or the Namespace that has the order; None for that of a pod."""
    named: Order | None = None
    """The object that the order names, if it names one."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the orders of pods mean now."""

    sets: tuple[OrderedSet, ...] = ()
    """The flag sets, of which a later one wins."""
    problems: tuple[OrderProblem, ...] = ()
    """For each order that cannot be followed, why."""
    names: frozenset[Place] = frozenset()
    """Names of objects whose change may change the resolution."""


class _RefusedError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def resolve(ordered: OrderedPods, objects: OrderObjects, catalog: Catalog) -> Resolution:
    """What the pods follow: what is ordered for their namespace, for their workload and by themselves, then
    the workload's direct set; each by itself.
    """
    names: set[Place] = set()
    workload = objects.workload(ordered)
    owners = {ordered.name} if workload is None else {ordered.name, workload.name}
    names.update((ordered.namespace, name) for name in owners if name)
    sets: list[OrderedSet] = []
    problems: list[OrderProblem] = []
    for by, holder, texts in _holders(ordered, objects, workload):
        order = ordered.own
        try:
            if by != BY_POD:
                order = order_of(texts, ordered.namespace)
            if order is None:
                continue
            names.add(order)
            wanted = _find(by, order, ordered.namespace, objects, catalog)
            _check_id(wanted, sets, catalog)
            sets.append(wanted)
        except InvalidOrderError as error:
            problems.append(OrderProblem(by, INVALID, str(error), holder))
        except _RefusedError as refusal:
            problems.append(OrderProblem(by, refusal.reason, str(refusal), holder, order))
    try:
        direct = _direct_set(ordered, workload, catalog)
        sets += [direct] if direct else []
    except _RefusedError as refusal:
        problems.append(OrderProblem(BY_DIRECT_SET, refusal.reason, str(refusal), workload))
    # What is ordered twice counts where it was ordered last.
    last = {ordered_set.place: number for number, ordered_set in enumerate(sets)}
    kept = tuple(one for number, one in enumerate(sets) if last[one.place] == number)
    return Resolution(kept, tuple(problems), frozenset(names))


def place_of(title: SetTitle, catalog: Catalog) -> Place:
    """Where the flags of a set are."""
    place = (title.namespace, title.name)
    written = catalog.written_by(place) if title.kind == flagset.KIND else None
    return written or place


def _holders(
    ordered: OrderedPods, objects: OrderObjects, workload: Resource | None
) -> Iterator[tuple[str, Resource | None, Mapping[str, str]]]:
    """(one of PRECEDENCE, the object that may have an order, the texts that say so)."""
    namespace = objects.namespace(ordered.namespace)
    yield BY_NAMESPACE, namespace, {} if namespace is None else namespace.labels
    yield BY_WORKLOAD, workload, {} if workload is None else workload.annotations
    yield BY_POD, None, {}


def _find(by: str, order: Order, reader: str, objects: OrderObjects, catalog: Catalog) -> OrderedSet:
    """The flag set that is ordered. Raises _RefusedError."""
    kinds: Sequence[str] = FLAG_SETS
    if order.namespace != reader:
        kinds = granted_kinds(objects.grants(order.namespace), pods(reader), order.name, FLAG_SETS)
        if not kinds:
            message = denial_message(pods(reader), order.namespace, order.name, FLAG_SETS)
            raise _RefusedError(NOT_GRANTED, f"{ORDER}: {message}")
    written = catalog.written_by(order) if flagset.KIND in kinds else None
    place = written or order
    served = catalog.object_at(place)
    if served is None or (written is None and served.key.kind not in kinds):
        message = (
            f"{ORDER}: namespace {order.namespace} has no flags of {' or '.join(kinds)} {order.name}; create "
            "it, or correct the name"
        )
        raise _RefusedError(UNKNOWN, message)
    kind = served.key.kind if written is None else flagset.KIND
    place_of_other = "" if order.namespace == reader else f"{order.namespace}/"
    return OrderedSet(by, (place[0], place[1]), f"{kind}/{place_of_other}{order.name}")


def _check_id(wanted: OrderedSet, earlier: Sequence[OrderedSet], catalog: Catalog) -> None:
    """Raise _RefusedError where a set has the flagSetId of an earlier one."""
    flag_set_id = catalog.claims.flag_set_id(wanted.place)
    for other in earlier:
        same = flag_set_id and catalog.claims.flag_set_id(other.place) == flag_set_id
        if same and other.place != wanted.place:
            message = (
                f"{ORDER}: {wanted.origin} and {other.origin} are ordered for the same pods and have the "
                f"flagSetId {flag_set_id!r} both; give one of them another, or remove one of the orders"
            )
            raise _RefusedError(CONFLICT, message)


def _direct_set(ordered: OrderedPods, workload: Resource | None, catalog: Catalog) -> OrderedSet | None:
    """The flags that the workload carries; None where it carries none. Raises _RefusedError while they are
    not there.
    """
    known = [] if workload is None else [(workload.key.kind, workload.name)]
    for kind, name in dict.fromkeys([(ordered.kind, ordered.name), *known]):
        served = catalog.object_at((ordered.namespace, name)) if name else None
        if served is None or served.key.kind != KIND:
            continue
        if any((owner.get("kind"), owner.get("name")) == (kind, name) for owner in served.owners):
            return OrderedSet(BY_DIRECT_SET, (ordered.namespace, name), f"{KIND}/{name}")
    if workload is not None and DIRECT_SET in workload.annotations:
        message = f"annotation {DIRECT_SET}: no {KIND} was made of it yet; see the controller's log"
        raise _RefusedError(NOT_READY, message)
    return None
