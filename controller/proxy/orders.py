"""Standing orders: the objects that decide which flag sets pods follow, and the sets found by them."""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.api import flagset
from controller.api.featureflagconfiguration import KIND
from controller.api.flaggrant import KIND as FLAG_GRANT
from controller.api.kinds import NAMESPACE, ORDERED, POD
from controller.api.meta import ObjectKey, Resource
from controller.delivery.grants import denial_message, granted_kinds, pods
from controller.delivery.object_bounds import ORDERS
from controller.delivery.standing_orders import (
    DIRECT_SET,
    FLAG_SETS,
    ORDER,
    RECORD,
    SPELLINGS,
    InvalidOrderError,
    Order,
    OrderedPods,
    SetTitle,
    asks_for_order,
    order_of,
)
from controller.runtime.event import Occurrence
from controller.runtime.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from controller.delivery.claims import Place
    from controller.proxy.catalog import ObjectCatalog
    from controller.runtime.cache import Change
    from controller.runtime.informer import Informer, Transform


_log = logging.getLogger(__name__)

ORDER_KINDS: Final = (POD.kind, *(type_.kind for type_ in ORDERED), FLAG_GRANT, NAMESPACE.kind)
"""What standing orders depend on."""
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "creationTimestamp")
_TEXTS: Final = frozenset(key for pair in SPELLINGS for key in pair)


class OrderObjects:
    """The objects that orders depend on."""

    def __init__(self, informer: Informer, kinds: Collection[str], namespaces: Collection[str]) -> None:
        """`kinds` are watched in `namespaces`, and each change of theirs is to be passed to `follow`. Without
        kinds, there are no orders.
        """
        self.changed: Callable[[str], None] = lambda _namespace: None
        """Called with a namespace whose orders may have changed; empty: those of any namespace."""
        self.pod_changed: Callable[[str], None] = lambda _uid: None
        """Called with the uid of a labelled Pod whose record changed, or that is not there any more."""
        self._objects = informer.store
        self._informer = informer
        self._kinds = frozenset(kinds) - {NAMESPACE.kind}
        self._placeless = frozenset(kinds) - self._kinds
        self._namespaces = namespaces
        self._counted: dict[str, frozenset[ObjectKey]] = {}
        """By namespace, the workloads whose orders count; found anew after a change there."""

    @property
    def synced(self) -> bool:
        """Whether all objects are known: before that, no order can be called missing."""
        has_listed = self._informer.has_listed
        return has_listed(self._placeless, ("",)) and has_listed(self._kinds, self._namespaces)

    # -- called as objects change

    def follow(self, change: Change) -> None:
        """Take in a change of an object."""
        before, after = change.before, change.after
        if before is None or after is None or _content(before) != _content(after):
            self._notify(change.before or change.latest)

    def on_list(self) -> None:
        """All objects of a kind were reported."""
        if self._kinds | self._placeless and self.synced:
            self.changed("")

    # -- asked by others

    def namespace(self, name: str) -> Resource | None:
        """The Namespace, if it is labelled with an order."""
        return self._objects.get(ObjectKey(NAMESPACE.kind, "", name))

    def workload(self, pods: OrderedPods) -> Resource | None:
        """The workload of `pods`, if admission has labelled it; of a CronJob's Job the CronJob."""
        workload = self._objects.get(ObjectKey(pods.kind, pods.namespace, pods.name))
        owners = () if workload is None else workload.owners
        owner = next((reference for reference in owners if reference.get("controller")), None)
        if owner is None:
            return workload
        return self._objects.get(ObjectKey(owner["kind"], pods.namespace, owner["name"])) or workload

    def counts(self, workload: Resource) -> bool:
        """Whether a workload with an order is within the bound of its namespace."""
        counted = self._counted.get(workload.namespace)
        if counted is None:
            known = (self._objects.of_kind(kind, workload.namespace) for kind in ORDERS.kinds)
            ordering = (each for each in itertools.chain(*known) if asks_for_order(each.annotations))
            counted = frozenset(each.key for each in ORDERS.oldest(ordering))
            self._counted[workload.namespace] = counted
        return workload.key in counted

    def grants(self, namespace: str) -> list[Resource]:
        """The FlagGrants of a namespace."""
        return self._objects.of_kind(FLAG_GRANT, namespace)

    def covers(self, namespace: str, pod: str, pods: OrderedPods) -> bool | None:
        """Whether a pod was injected as one of `pods`; None: no labelled pod of the name is known yet."""
        labelled = self._objects.get(ObjectKey(POD.kind, namespace, pod))
        if labelled is None:
            return None
        record = json_object(labelled.annotations.get(RECORD, "")) or {}
        return str(pods) in str(record.get("flagSet")).split(",")

    def _notify(self, known: Resource) -> None:
        key = known.key
        if key.kind == POD.kind:
            self.pod_changed(known.uid)
            return
        self._counted.pop(key.namespace, None)
        if self.synced:
            self.changed("" if key.kind == FLAG_GRANT else key.namespace or key.name)


def without_content(kind: str) -> Transform:
    """Return the transform that keeps what orders depend on."""

    def transform(body: Mapping[str, Any], _known: Resource | None) -> Resource:
        return _without_content(kind, body)

    return transform


def _without_content(kind: str, body: Mapping[str, Any]) -> Resource:
    meta = body["metadata"]
    annotations, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    kept: dict[str, Any] = {name: meta[name] for name in _KEPT if name in meta}
    kept["annotations"] = {key: text for key, text in annotations.items() if key in _TEXTS or key == RECORD}
    if DIRECT_SET in annotations:
        # Up to 128 KiB, of which the presence matters alone.
        kept["annotations"][DIRECT_SET] = ""
    kept["labels"] = {key: text for key, text in labels.items() if key in _TEXTS}
    spec = {"spec": body.get("spec")} if kind == FLAG_GRANT else {}
    return Resource.of({"apiVersion": body.get("apiVersion", ""), "kind": kind, "metadata": kept, **spec})


def _content(resource: Resource) -> object:
    return resource.uid, resource.annotations, resource.labels, resource.spec, resource.owners


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
class OrderResolution:
    """What the orders of pods mean now."""

    sets: tuple[OrderedSet, ...] = ()
    """The flag sets, of which a later one wins."""
    problems: tuple[OrderProblem, ...] = ()
    """For each order that cannot be followed, why."""
    names: frozenset[Place] = frozenset()
    """Names of objects whose change may change the resolution."""


_FEWER: Final = (
    "those with a standing order are counted; delete one that is done, remove its order, or order for all of "
    f"them by the label {ORDER} of the Namespace"
)


class _RefusedError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def resolve(ordered: OrderedPods, objects: OrderObjects, catalog: ObjectCatalog) -> OrderResolution:
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
            _check_bound(by, holder, objects)
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
    return OrderResolution(kept, tuple(problems), frozenset(names))


def place_of(title: SetTitle, catalog: ObjectCatalog) -> Place:
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


def _check_bound(by: str, holder: Resource | None, objects: OrderObjects) -> None:
    """Raise _RefusedError for the order of a workload that is beyond the bound of its namespace."""
    if by == BY_WORKLOAD and holder is not None and not objects.counts(holder):
        raise _RefusedError(ORDERS.reason, ORDERS.message(holder.namespace, _FEWER))


def _find(by: str, order: Order, reader: str, objects: OrderObjects, catalog: ObjectCatalog) -> OrderedSet:
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


def _check_id(wanted: OrderedSet, earlier: Sequence[OrderedSet], catalog: ObjectCatalog) -> None:
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


def _direct_set(ordered: OrderedPods, workload: Resource | None, catalog: ObjectCatalog) -> OrderedSet | None:
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


MOST: Final = 1_000
"""Problems that are reported as Events at a time."""


class OrderNotices:
    """Remembers the problem of each topic."""

    def __init__(self) -> None:
        self._problems: dict[OrderedPods, tuple[OrderProblem, ...]] = {}
        self._reported: set[tuple[ObjectKey, str]] = set()

    def note(self, topic: OrderedPods, problems: Iterable[OrderProblem]) -> None:
        """The orders of the topic's pods have these problems now."""
        before = self._problems.pop(topic, ())
        # A direct set is made within moments.
        current = tuple(problem for problem in problems if problem.reason != NOT_READY)
        if current:
            self._problems[topic] = current
        elif before:
            _log.info("%s: the standing orders can be followed again", topic)
        known = {problem.message for problem in before}
        for problem in current:
            if problem.message not in known:
                _log.warning(
                    "%s: %s: %s; its pods keep what they have of that set, and follow the others",
                    topic, problem.reason, problem.message,
                )  # fmt: skip

    def take(self) -> list[tuple[Resource, Occurrence]]:
        """(object, Event) of every problem that no Event has named since it came up."""
        current: dict[tuple[ObjectKey, str], OrderProblem] = {}
        for problem in itertools.chain.from_iterable(self._problems.values()):
            if problem.about is not None and len(current) < MOST:
                current[problem.about.key, problem.message] = problem
        events = [
            (problem.about, Occurrence(problem.reason, problem.message, warning=True))
            for key, problem in current.items()
            if key not in self._reported and problem.about is not None
        ]
        self._reported = set(current)
        return events
