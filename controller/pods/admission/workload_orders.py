"""Standing orders of workloads: judged as they are applied, and marked for proxies by a label. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.delivery.standing_orders import ORDERS_LABEL, asks_for_order
from controller.pods.direct_sets.carried_flags import METADATA, annotations_at, part_at, template_path
from controller.pods.settings import well_known
from controller.pods.settings.installation import Refused
from controller.pods.settings.pod_orders import MARKED, read_order, require_orders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from controller.pods.injection.changes import Changes, Path
    from controller.pods.settings.installation import Known
    from controller.pods.settings.pod_orders import PlacedOrder

_LABELS: Final = (*METADATA, "labels")


@dataclass(frozen=True, slots=True)
class WorkloadOrders:
    """Marks workloads with orders, and has their pods follow these."""

    known: Known
    namespace_labels: Callable[[str], Mapping[str, str] | None]
    """Returns the labels of a Namespace with a standing order, as far as it is known."""

    def mark(self, changes: Changes, before: Mapping[str, Any] | None, namespace: str) -> None:
        """Label the workload and its pods' template, if it has an order, and remove the labels if it has
        none. `before`: the workload as it is stored, None for a new one. Raises Refused for a new order that
        cannot be followed.
        """
        workload = changes.after
        asks = asks_for_order(annotations_at(workload, METADATA))
        template = (*template_path(workload), "labels")
        inherited = self.namespace_labels(namespace)
        marked = ORDERS_LABEL in part_at(workload, template) or inherited is not None
        paths: list[Path] = [_LABELS]
        # The template of a stored Job cannot be changed. Where a Namespace has an order, pods follow orders
        # already: a changed template would replace them.
        if before is None or (workload["kind"] != "Job" and inherited is None):
            paths.append(template)
        if workload["kind"] == "CronJob":
            paths.append(("spec", "jobTemplate", "metadata", "labels"))
        if not asks:
            for path in paths:
                if ORDERS_LABEL in part_at(workload, path):
                    changes.remove((*path, ORDERS_LABEL))
            return
        self._require(workload, before, namespace, inherited or {})
        for path in paths:
            changes.merge(path, {ORDERS_LABEL: MARKED})
        changes.warnings += _warnings(workload, before, marked=marked)

    def _require(
        self,
        workload: Mapping[str, Any],
        before: Mapping[str, Any] | None,
        namespace: str,
        labels: Mapping[str, str],
    ) -> None:
        own = _order_at(workload, METADATA, namespace)
        try:
            stored = None if before is None else _order_at(before, METADATA, namespace)
        except Refused:
            stored = None
        if own == stored:
            return
        of_pods = _order_at(workload, template_path(workload), namespace)
        require_orders([read_order(labels, namespace, "label"), of_pods, own], namespace, self.known)


def _order_at(workload: Mapping[str, Any], path: Path, namespace: str) -> PlacedOrder | None:
    texts = {name: str(text) for name, text in annotations_at(workload, path).items()}
    return read_order(texts, namespace, "annotation")


def _warnings(
    workload: Mapping[str, Any], before: Mapping[str, Any] | None, *, marked: bool
) -> tuple[str, ...]:
    kind, name = workload["kind"], part_at(workload, METADATA).get("name")
    if before is not None and not marked and kind == "Job":
        return (
            f"the pods' template of Job {name} cannot be changed: its pods follow no standing orders; delete "
            "the Job and create it again",
        )
    if annotations_at(workload, template_path(workload)).get(well_known.ENABLED, "true") != "true":
        return (
            f"annotation {well_known.ENABLED} of the pods' template is not true, so the pods get no "
            "evaluator; remove it",
        )
    if before is not None and not marked and kind != "CronJob":
        return (f"{kind} {name} had no standing orders before: its pods are replaced, to get an evaluator",)
    return ()
