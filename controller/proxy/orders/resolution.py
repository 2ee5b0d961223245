"""Finds the flag sets that pods follow by their standing orders. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.api import flagset
from controller.api.openfeature.featureflagconfiguration import KIND
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.delivery.standing_orders import DIRECT_SET, FLAG_SETS, ORDER, InvalidOrderError, order_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controller.api.objects.meta import Resource
    from controller.delivery.claim import Place
    from controller.delivery.standing_orders import Order, OrderedPods
    from controller.proxy.catalog import Catalog
    from controller.proxy.orders.order_objects import OrderObjects

INVALID: Final = "OrderInvalid"
UNKNOWN: Final = "OrderUnknown"
NOT_GRANTED: Final = "OrderNotGranted"
CONFLICT: Final = "OrdersConflict"
NOT_READY: Final = "DirectSetMissing"


class OrderedSet(NamedTuple):
    """One of the flag sets that pods follow."""

    place: Place
    """Where the proxy finds its content."""
    origin: str
    """`Kind/name` of the object that users know; of another namespace `Kind/namespace/name`."""


@dataclass(frozen=True, slots=True)
class OrderProblem:
    """Why the orders of pods cannot be followed."""

    reason: str
    """One of the reasons above."""
    message: str
    """Text that says what to do."""
    about: Resource | None = None
    """The workload or the Namespace that has the order; None for that of a pod."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the orders of pods mean now."""

    sets: tuple[OrderedSet, ...] = ()
    """The flag sets, of which a later one wins; empty where there is a problem, or nothing is ordered."""
    problem: OrderProblem | None = None
    names: frozenset[Place] = frozenset()
    """Names of objects whose change may change the resolution."""


class _RefusedError(Exception):
    def __init__(self, problem: OrderProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def resolve(ordered: OrderedPods, objects: OrderObjects, catalog: Catalog) -> Resolution:
    """What the pods follow: what is ordered for their namespace, for their workload and by themselves, then
    the workload's direct set.
    """
    names: set[Place] = set()
    workload = objects.workload(ordered)
    owners = {ordered.name} if workload is None else {ordered.name, workload.name}
    names.update((ordered.namespace, name) for name in owners if name)
    sets: list[OrderedSet] = []
    try:
        for order, about in _orders(ordered, objects, workload):
            names.add(order)
            sets.append(_find(order, ordered.namespace, about, objects, catalog))
            _check_ids(sets, about, catalog)
        direct = _direct_set(ordered, workload, catalog)
    except _RefusedError as refusal:
        return Resolution(problem=refusal.problem, names=frozenset(names))
    sets += [direct] if direct else []
    # What is ordered twice counts where it was ordered last.
    last = {ordered_set.place: number for number, ordered_set in enumerate(sets)}
    kept = tuple(one for number, one in enumerate(sets) if last[one.place] == number)
    return Resolution(kept, names=frozenset(names))


def _orders(
    ordered: OrderedPods, objects: OrderObjects, workload: Resource | None
) -> Iterator[tuple[Order, Resource | None]]:
    """Each order, and the object that has it. Raises _RefusedError for a malformed one."""
    namespace = objects.namespace(ordered.namespace)
    for holder, texts in (
        (namespace, {} if namespace is None else namespace.labels),
        (workload, {} if workload is None else workload.annotations),
    ):
        try:
            order = order_of(texts, ordered.namespace)
        except InvalidOrderError as error:
            raise _RefusedError(OrderProblem(INVALID, str(error), holder)) from None
        if order is not None:
            yield order, holder
    if ordered.own is not None:
        yield ordered.own, None


def _find(
    order: Order, reader: str, about: Resource | None, objects: OrderObjects, catalog: Catalog
) -> OrderedSet:
    """The flag set that is ordered. Raises _RefusedError."""
    kinds: Sequence[str] = FLAG_SETS
    if order.namespace != reader:
        kinds = granted_kinds(objects.grants(order.namespace), pods(reader), order.name, FLAG_SETS)
        if not kinds:
            message = denial_message(pods(reader), order.namespace, order.name, FLAG_SETS)
            raise _RefusedError(OrderProblem(NOT_GRANTED, f"{ORDER}: {message}", about))
    written = catalog.written_by(order) if flagset.KIND in kinds else None
    place = written or order
    served = catalog.object_at(place)
    if served is None or (written is None and served.key.kind not in kinds):
        message = (
            f"{ORDER}: namespace {order.namespace} has no flags of {' or '.join(kinds)} {order.name}; create "
            "it, or correct the name"
        )
        raise _RefusedError(OrderProblem(UNKNOWN, message, about))
    kind = served.key.kind if written is None else flagset.KIND
    place_of_other = "" if order.namespace == reader else f"{order.namespace}/"
    return OrderedSet((place[0], place[1]), f"{kind}/{place_of_other}{order.name}")


def _check_ids(sets: Sequence[OrderedSet], about: Resource | None, catalog: Catalog) -> None:
    """Raise _RefusedError where the last of `sets` has the flagSetId of another."""
    *earlier, last = sets
    wanted = catalog.claims.flag_set_id(last.place)
    for other in earlier:
        if wanted and other.place != last.place and catalog.claims.flag_set_id(other.place) == wanted:
            message = (
                f"{ORDER}: {last.origin} and {other.origin} are ordered for the same pods and have the "
                f"flagSetId {wanted!r} both; give one of them another, or remove one of the orders"
            )
            raise _RefusedError(OrderProblem(CONFLICT, message, about))


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
            return OrderedSet((ordered.namespace, name), f"{KIND}/{name}")
    if workload is not None and DIRECT_SET in workload.annotations:
        message = f"annotation {DIRECT_SET}: no {KIND} was made of it yet; see the controller's log"
        raise _RefusedError(OrderProblem(NOT_READY, message, workload))
    return None
