"""A pod in, the pod with its evaluator out: for the webhook and for `flagstaff inject` alike. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.pods.injection import in_process, well_known
from controller.pods.injection import operators_sidecar as operators
from controller.pods.injection.changes import Changes, record_of
from controller.pods.injection.evaluator_container import (
    evaluator,
    marks,
    proxy_marks,
    socket,
    variables,
    volumes,
)
from controller.pods.injection.installation import Refused
from controller.pods.injection.pod_containers import (
    check_form,
    containers,
    mounted_at,
    pod_warnings,
    require_containers,
    taken_ports,
)
from controller.pods.injection.pod_settings import is_enabled, read
from controller.runtime.user_text.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.pods.injection.evaluator_container import Mounted
    from controller.pods.injection.in_process import InProcess
    from controller.pods.injection.installation import Known, Options
    from controller.pods.injection.pod_settings import PodSettings


MOST_BYTES: Final = 1_048_576
"""Of the answer to a review."""


def inject(pod: Mapping[str, Any], namespace: str, options: Options, known: Known) -> Changes | None:
    """What is added to a pod of `namespace`, or to a workload's template of one; None where it asks for
    nothing. An injected pod stays as it is, but for containers that came later. Raises Refused.
    """
    meta = pod.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    if not (isinstance(annotations, dict) and is_enabled(annotations)):
        return None
    check_form(pod, annotations)
    if _evaluates_itself(annotations):
        return _in_process(pod, namespace, options, known)
    wanted = read(annotations, namespace, options, known)
    changes = Changes(pod)
    if options.compat and well_known.INJECTED not in annotations and _has_container(pod, options):
        changes.warnings = (f"container {options.container}: the pod brings its own, which stays as it is",)
        return changes
    changes.warnings = pod_warnings(pod, wanted)
    if not _is_injected(pod, annotations, wanted):
        _check_free(pod, wanted)
        _add_sidecar(changes, wanted)
    clients = [*_clients(changes.after, wanted)]
    given = variables(wanted)
    _check_size(given, len(clients))
    for path, client in clients:
        _extend(changes, path, client, given, socket(wanted))
    return changes


def _check_size(given: list[dict[str, Any]], containers: int) -> None:
    """Raise Refused where the variables of all containers would not fit into an answer."""
    size = len(json.dumps(given)) * containers
    if size > MOST_BYTES:
        raise Refused(
            f"the evaluator's variables for {containers} containers have {size} bytes, and an answer has at "
            f"most {MOST_BYTES}; name fewer with the annotation {well_known.CONTAINERS}, or shorten envVars"
        )


def _extend(
    changes: Changes,
    path: tuple[str | int, ...],
    container: Mapping[str, Any],
    given: Iterable[Mapping[str, Any]],
    shared: Iterable[Mounted],
) -> None:
    """Variables that the application sets itself stay."""
    own, mounted = {variable.get("name") for variable in container.get("env") or ()}, mounted_at(container)
    changes.extend((*path, "env"), [each for each in given if each["name"] not in own])
    changes.extend((*path, "volumeMounts"), [mount.mount for mount in shared if mount.folder not in mounted])


def _in_process(pod: Mapping[str, Any], namespace: str, options: Options, known: Known) -> Changes:
    """Variables alone, and where it is needed the proxy's authority; no container."""
    made = in_process.make_in_process(pod["metadata"]["annotations"], namespace, options, known)
    changes = Changes(pod)
    changes.warnings = made.warnings
    require_containers(pod, made.containers)
    there = {volume.get("name") for volume in pod["spec"].get("volumes") or ()}
    changes.extend(("spec", "volumes"), [mount.volume for mount in made.mounted if mount.name not in there])
    clients = [
        (path, each)
        for path, each in containers(changes.after)
        if made.containers is None or each["name"] in made.containers
        if path[1] == "containers" or not options.compat
    ]
    _check_size(made.variables, len(clients))
    for path, client in clients:
        _extend(changes, path, client, made.variables, made.mounted)
    if changes.patch:
        _annotate(changes, _record_in_process(made))
        if made.selector:
            _mark(changes, proxy_marks(options))
    return changes


def record_now(
    annotations: Mapping[str, str], namespace: str, options: Options, known: Known
) -> dict[str, str] | None:
    """Return `flagstaff.dev/injected` for a new pod; None: it wants no evaluator. Raises Refused."""
    if not is_enabled(annotations):
        return None
    if _evaluates_itself(annotations):
        return _record_in_process(in_process.make_in_process(annotations, namespace, options, known))
    wanted = read(annotations, namespace, options, known)
    return _record(evaluator(wanted), wanted)


def _evaluates_itself(annotations: Mapping[str, Any]) -> bool:
    """Whether the application does, so that it gets variables alone."""
    return well_known.IN_PROCESS in annotations and not annotations.keys() & {
        well_known.SOURCES,
        well_known.FLAG_SET,
    }


def _record_in_process(made: InProcess) -> dict[str, str]:
    folder = made.mounted[0].folder if made.mounted else ""
    return record_of({"from": made.followed}, None, made.variables, folder, made.containers)


def _record(made: Mapping[str, Any], wanted: PodSettings) -> dict[str, str]:
    beside = volumes(wanted), variables(wanted)
    return record_of(wanted.followed, made, *beside, wanted.containers)


def _annotate(changes: Changes, record: Mapping[str, str]) -> None:
    text = json.dumps(record, separators=(",", ":"))
    changes.set(("metadata", "annotations", well_known.INJECTED), text)


def _has_container(pod: Mapping[str, Any], options: Options) -> bool:
    return any(each["name"] == options.container for _, each in containers(pod))


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


def _check_free(pod: Mapping[str, Any], wanted: PodSettings) -> None:
    """Raise Refused where what is to be added is there, or a container that is named is not."""
    own = {each["name"] for each in volumes(wanted)}
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("name") in own:
            raise Refused(f"volume {volume['name']}: the evaluator's has this name; give yours another")
    require_containers(pod, wanted.containers)
    if wanted.socket_path:
        _check_mounts(pod, wanted)
    if not wanted.options.compat:
        for complaint in taken_ports(pod, wanted):
            raise Refused(complaint)


def _check_mounts(pod: Mapping[str, Any], wanted: PodSettings) -> None:
    folder = wanted.socket_path.rpartition("/")[0]
    for _, client in _clients(pod, wanted):
        if folder in mounted_at(client):
            raise Refused(
                f"container {client['name']}: mounts a volume at {folder}, where the evaluator's socket "
                f"is to be; choose another with the annotation {well_known.SOCKET_PATH}"
            )


def _add_sidecar(changes: Changes, wanted: PodSettings) -> None:
    made = evaluator(wanted)
    if wanted.native:
        # First, so that the init containers behind it can evaluate.
        changes.extend(("spec", "initContainers"), [_with_access(made, changes.after)], first=True)
    else:
        changes.extend(("spec", "containers"), [_with_access(made, changes.after)])
    changes.extend(("spec", "volumes"), volumes(wanted))
    _annotate(changes, _record(made, wanted))
    if wanted.options.compat and operators.asks_for_kubernetes(wanted):
        changes.set(("metadata", "annotations", well_known.ALLOW_SYNC), "true")
    _mark(changes, marks(wanted, changes.after["spec"].get("serviceAccountName")))


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
    found = next(mounts, None)
    if found is None or not str(found.get("name")).startswith("kube-api-access-"):
        return made
    return {**made, "volumeMounts": [*made.get("volumeMounts", ()), found]}


def _mark(changes: Changes, given: Iterable[tuple[str, str, str]]) -> None:
    for part, name, value in given:
        if changes.after["metadata"].get(part):
            changes.set(("metadata", part, name), value)
        else:
            changes.set(("metadata", part), {name: value})


def _clients(
    pod: Mapping[str, Any], wanted: PodSettings
) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The containers that get the evaluator's address. Before a plain sidecar no init container can ask it;
    OpenFeature Operator gives it to none.
    """
    early = wanted.native and not wanted.options.compat
    for path, container in containers(pod):
        asks = wanted.containers is None or container["name"] in wanted.containers
        if asks and container["name"] != wanted.options.container and (early or path[1] == "containers"):
            yield path, container
