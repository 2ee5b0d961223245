"""A pod in, the pod with its evaluator out: for the webhook and for `flagstaff inject` alike. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.pods.injection.changes import Changes
from controller.pods.injection.evaluator_container import make
from controller.pods.injection.in_process import make_in_process
from controller.pods.injection.pod_containers import (
    check_form,
    containers,
    mount_paths,
    pod_warnings,
    require_containers,
    taken_ports,
)
from controller.pods.settings import well_known
from controller.pods.settings.installation import Refused
from controller.pods.settings.pod_orders import ALONE, is_ordered, orders_selector
from controller.pods.settings.pod_settings import read, wants_evaluator
from controller.pods.settings.remarks import remark_annotations
from controller.runtime.user_text.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.pods.injection.addition import Addition, Mounted
    from controller.pods.settings.installation import Known, Options
    from controller.pods.settings.pod_orders import Surroundings
    from controller.pods.settings.pod_settings import PodSettings


MOST_BYTES: Final = 1_048_576
"""Of the answer to a review."""


def inject(
    pod: Mapping[str, Any], namespace: str, options: Options, known: Known, around: Surroundings = ALONE
) -> Changes | None:
    """What is added to a pod of `namespace`, or to a workload's template of one; None where it asks for
    nothing and nothing is ordered for it. An injected pod stays as it is, but for containers that came later.
    Raises Refused.
    """
    meta = pod.get("metadata")
    annotations = (meta.get("annotations") or {}) if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(annotations, dict):
        return None
    if not wants_evaluator(annotations, ordered=is_ordered(meta, around)):
        return None
    check_form(pod, annotations)
    if _evaluates_itself(annotations):
        addition, _ = make_in_process(annotations, namespace, options, known)
        return _add_variables(pod, addition)
    orders = orders_selector(meta, namespace, known, around)
    wanted = read(annotations, namespace, options, known, orders)
    return _add_evaluator(pod, wanted, make(wanted, pod["spec"].get("serviceAccountName")))


def record_now(
    annotations: Mapping[str, str], namespace: str, options: Options, known: Known, orders: str = ""
) -> Mapping[str, str] | None:
    """Return `flagstaff.dev/injected` for a new pod, whose standing orders have the selector `orders`; None:
    it wants no evaluator. Raises Refused.
    """
    if not wants_evaluator(annotations, ordered=bool(orders)):
        return None
    if _evaluates_itself(annotations):
        return make_in_process(annotations, namespace, options, known)[0].record
    return make(read(annotations, namespace, options, known, orders), None).record


def _add_variables(pod: Mapping[str, Any], addition: Addition) -> Changes:
    """For an application that evaluates by itself: no container."""
    changes = Changes(pod)
    changes.warnings = addition.warnings
    require_containers(pod, addition.chosen)
    present = {volume.get("name") for volume in pod["spec"].get("volumes") or ()}
    _add_volumes(changes, [mounted for mounted in addition.volumes if mounted.name not in present])
    _add_to_clients(changes, addition, "")
    if changes.patch:
        _record(changes, addition)
    return changes


def _add_evaluator(pod: Mapping[str, Any], wanted: PodSettings, addition: Addition) -> Changes:
    changes, options = Changes(pod), wanted.options
    annotations = pod["metadata"].get("annotations") or {}
    if options.compat and well_known.INJECTED not in annotations and _has_container(pod, options):
        changes.warnings = (f"container {options.container}: the pod brings its own, which stays as it is",)
        return changes
    changes.warnings = (*addition.warnings, *pod_warnings(pod, wanted))
    if not _is_injected(pod, annotations, wanted):
        _check_free(pod, wanted, addition)
        container = _with_access(addition.container or {}, pod)
        # First, so that the init containers behind it can evaluate.
        part = "initContainers" if addition.native else "containers"
        changes.extend(("spec", part), [container], first=addition.native)
        _add_volumes(changes, addition.volumes)
        _record(changes, addition)
    _add_to_clients(changes, addition, options.container)
    return changes


def _add_to_clients(changes: Changes, addition: Addition, evaluator: str) -> None:
    """Variables that the application sets itself stay."""
    clients = [*_clients(changes.after, addition, evaluator)]
    # What would not fit into an answer is not made.
    size = len(json.dumps(addition.variables)) * len(clients)
    if size > MOST_BYTES:
        raise Refused(
            f"the evaluator's variables for {len(clients)} containers have {size} bytes, and an answer has "
            f"at most {MOST_BYTES}; name fewer with the annotation {well_known.CONTAINERS}, or shorten "
            "envVars"
        )
    for path, client in clients:
        own, folders = {variable.get("name") for variable in client.get("env") or ()}, mount_paths(client)
        variables = [variable for variable in addition.variables if variable["name"] not in own]
        changes.extend((*path, "env"), variables)
        mounts = [mounted.mount for mounted in addition.mounts if mounted.folder not in folders]
        changes.extend((*path, "volumeMounts"), mounts)


def _clients(
    pod: Mapping[str, Any], addition: Addition, evaluator: str
) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The containers that evaluate flags; `evaluator`: the name of the one that does it for them."""
    for path, container in containers(pod):
        chosen = addition.chosen is None or container["name"] in addition.chosen
        if chosen and container["name"] != evaluator and (addition.early or path[1] == "containers"):
            yield path, container


def _add_volumes(changes: Changes, volumes: Iterable[Mounted]) -> None:
    changes.extend(("spec", "volumes"), [mounted.volume for mounted in volumes])


def _record(changes: Changes, addition: Addition) -> None:
    text = json.dumps(addition.record, separators=(",", ":"))
    remarks = remark_annotations(addition.remark, changes.after["metadata"].get("annotations") or {})
    written = (("annotations", name, value) for name, value in {well_known.INJECTED: text, **remarks}.items())
    for part, name, value in (*written, *addition.marks):
        if changes.after["metadata"].get(part):
            changes.set(("metadata", part, name), value)
        else:
            changes.set(("metadata", part), {name: value})


def _evaluates_itself(annotations: Mapping[str, Any]) -> bool:
    """Whether the application does, so that it gets variables alone."""
    return well_known.IN_PROCESS in annotations and not annotations.keys() & {
        well_known.SOURCES,
        well_known.FLAG_SET,
        well_known.DIRECT_SET,
    }


def _has_container(pod: Mapping[str, Any], options: Options) -> bool:
    return any(container["name"] == options.container for _, container in containers(pod))


def _is_injected(pod: Mapping[str, Any], annotations: Mapping[str, str], wanted: PodSettings) -> bool:
    given = annotations.get(well_known.INJECTED)
    container = wanted.options.container
    present = _has_container(pod, wanted.options)
    if given is None and present:
        raise Refused(
            f"container {container}: the pod has one of this name already; remove it, or set "
            f"{well_known.ENABLED} to false to keep your own"
        )
    if given is None or not present:
        return False
    # A FeatureFlagSource may have changed since: the pod keeps what it was given.
    field = "from" if well_known.sources(annotations) else "flagSet"
    before = (json_object(given) or {}).get(field)
    if before != wanted.followed[field]:
        raise Refused(
            f"annotation {well_known.INJECTED}: the pod's evaluator follows {before}, and the pod now asks "
            f"for {wanted.followed[field]}; remove the annotation and the container {container}"
        )
    return True


def _check_free(pod: Mapping[str, Any], wanted: PodSettings, addition: Addition) -> None:
    """Raise Refused where what is to be added is there, or a container that is named is not."""
    own = {mounted.name for mounted in addition.volumes}
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("name") in own:
            raise Refused(f"volume {volume['name']}: the evaluator's has this name; give yours another")
    require_containers(pod, wanted.containers)
    folders = {mounted.folder for mounted in addition.mounts}
    for _, client in _clients(pod, addition, wanted.options.container):
        for folder in folders & mount_paths(client):
            raise Refused(
                f"container {client['name']}: mounts a volume at {folder}, where the evaluator's socket "
                f"is to be; choose another with the annotation {well_known.SOCKET_PATH}"
            )
    if not wanted.options.compat:
        for complaint in taken_ports(pod, wanted):
            raise Refused(complaint)


def _with_access(made: dict[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    """Add the volume of the API server's token, as the API server does itself: if that added it after us, it
    would have the pod reviewed a second time.
    """
    mounts = (
        mount
        for container in pod["spec"]["containers"]
        for mount in container.get("volumeMounts") or ()
        if mount.get("mountPath") == "/var/run/secrets/kubernetes.io/serviceaccount"
    )
    token_mount = next(mounts, None)
    if token_mount is None or not str(token_mount.get("name")).startswith("kube-api-access-"):
        return made
    return {**made, "volumeMounts": [*made.get("volumeMounts", ()), token_mount]}
