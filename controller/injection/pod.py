"""A pod in, the pod with its evaluator out: for the webhook and for `flagstaff inject` alike. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.injection import names, sidecar, source
from controller.injection.changes import Changes
from controller.injection.options import Refused
from controller.injection.wanted import is_enabled, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.injection.options import Known, Options
    from controller.injection.wanted import Wanted

_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_LISTS: Final = ("initContainers", "containers")


def inject(pod: Mapping[str, Any], namespace: str, options: Options, known: Known) -> Changes | None:
    """What is added to a pod of `namespace`, or to a workload's template of one; None where it asks for
    nothing. An injected pod stays as it is, but for containers that came later. Raises Refused.
    """
    meta = pod.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    if not (isinstance(annotations, dict) and is_enabled(annotations)):
        return None
    _check_form(pod, annotations)
    wanted = read(annotations, namespace, known)
    changes = Changes(pod)
    changes.warnings = source.warnings(wanted.settings)
    if not _is_injected(pod, annotations, wanted):
        _check_free(pod, wanted, options)
        _add_sidecar(changes, wanted, options)
    for path, each in _told(changes.after, wanted):
        # What the application sets itself stays.
        own = {variable.get("name") for variable in each.get("env") or () if isinstance(variable, dict)}
        added = [variable for variable in sidecar.variables(wanted) if variable["name"] not in own]
        changes.extend((*path, "env"), added)
    return changes


def _check_form(pod: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Whoever is offline may have written anything."""
    for name, text in annotations.items():
        if not isinstance(text, str):
            raise Refused(f"annotation {name}: is no string; put it in quotes")
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        raise Refused("spec: is no object; write a pod's spec")
    for name in _LISTS:
        for each in spec.get(name) or ():
            if not (isinstance(each, dict) and isinstance(each.get("name"), str)):
                raise Refused(f"spec.{name}: each must be an object with a name; add it")
    if not spec.get("containers"):
        raise Refused("spec.containers: is empty; add the application's container")


def _is_injected(pod: Mapping[str, Any], annotations: Mapping[str, str], wanted: Wanted) -> bool:
    given = annotations.get(names.INJECTED)
    present = any(each["name"] == names.CONTAINER for _, each in _containers(pod))
    if given is None and present:
        raise Refused(
            f"container {names.CONTAINER}: the pod has one of this name already; remove it, or set "
            f"{names.ENABLED} to false to keep your own"
        )
    if given is None or not present:
        return False
    # A FeatureFlagSource may have changed since: the pod keeps what it was given.
    field = "from" if names.SOURCES in annotations else "flagSet"
    try:
        before = json.loads(given).get(field)
    except (ValueError, AttributeError, RecursionError):
        before = None
    if before != wanted.told[field]:
        raise Refused(
            f"annotation {names.INJECTED}: the pod's evaluator follows {before}, and the pod now asks for "
            f"{wanted.told[field]}; remove the annotation and the container {names.CONTAINER}"
        )
    return True


def _check_free(pod: Mapping[str, Any], wanted: Wanted, options: Options) -> None:
    """Raise Refused where what is to be added is there, or a container that is named is not."""
    own = {each["name"] for each in sidecar.volumes(options)}
    for volume in pod["spec"].get("volumes") or ():
        if isinstance(volume, dict) and volume.get("name") in own:
            raise Refused(f"volume {volume['name']}: the evaluator's has this name; give yours another")
    present = {each["name"] for _, each in _containers(pod)}
    for name in sorted((wanted.containers or frozenset()) - present):
        raise Refused(
            f"annotation {names.CONTAINERS}: the pod has no container {name[:63]!r}; "
            f"it has {', '.join(sorted(present))}"
        )
    by_number = {number: annotation for annotation, number in wanted.ports.items()}
    for _, each in _containers(pod):
        for port in _ports(each):
            if port in by_number:
                raise Refused(
                    f"container {each['name']}: uses port {port}, which is the evaluator's; "
                    f"give the evaluator another with the annotation {by_number[port]}"
                )


def _add_sidecar(changes: Changes, wanted: Wanted, options: Options) -> None:
    made = sidecar.container(wanted, options)
    if wanted.native:
        # First, so that the init containers behind it can evaluate.
        changes.extend(("spec", "initContainers"), [made], first=True)
    else:
        changes.extend(("spec", "containers"), [made])
    changes.extend(("spec", "volumes"), sidecar.volumes(options))
    text = json.dumps({**wanted.told, "image": made["image"]}, separators=(",", ":"))
    changes.set(("metadata", "annotations", names.INJECTED), text)


def _containers(pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Each container with its path, in the order in which they start."""
    for part in _LISTS:
        for number, each in enumerate(pod["spec"].get(part) or ()):
            yield ("spec", part, number), each


def _told(pod: Mapping[str, Any], wanted: Wanted) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """The containers that are to know where the evaluator is. Before a plain sidecar no init container can
    ask it.
    """
    for path, each in _containers(pod):
        asks = wanted.containers is None or each["name"] in wanted.containers
        if asks and each["name"] != names.CONTAINER and (wanted.native or path[1] == "containers"):
            yield path, each


def _ports(container: Mapping[str, Any]) -> Iterator[int]:
    """The numbers that a container is known to listen on."""
    for port in container.get("ports") or ():
        if isinstance(port, dict) and port.get("protocol", "TCP") == "TCP":
            number = port.get("containerPort")
            if isinstance(number, int):
                yield number
    for name in _PROBES:
        probe = container.get(name)
        for asked in probe.values() if isinstance(probe, dict) else ():
            if isinstance(asked, dict) and isinstance(asked.get("port"), int):
                yield asked["port"]
