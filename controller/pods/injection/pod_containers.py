"""The containers of a pod, as far as they can be read: its manifest may hold anything. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.pods.settings import well_known
from controller.pods.settings.installation import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.pods.settings.pod_settings import PodSettings

_LISTS: Final = ("initContainers", "containers")
_OF_CONTAINERS: Final = (
    ("env", "name", "[{name: LOG_LEVEL, value: info}]"),
    ("volumeMounts", "mountPath", "[{name: data, mountPath: /data}]"),
    ("ports", "name", "[{name: http, containerPort: 8080}]"),
)
"""Lists: the field, the text by which its objects are known, and an example."""


MOST_CONTAINERS: Final = 256
MOST_KEYS: Final = 1_000
"""Labels, and annotations, of a pod."""
MOST_ENTRIES: Final = 10_000
"""Variables, mounts and ports of all containers, and volumes."""


def check_form(pod: Mapping[str, Any], annotations: Mapping[Any, Any]) -> None:
    """Raise Refused for what the other functions cannot read, or not within the time of a review."""
    labels, spec = pod["metadata"].get("labels"), pod.get("spec")
    if not isinstance(labels, dict | None):
        raise Refused("metadata.labels: is no object; write labels such as {app: shop}")
    if not isinstance(spec, dict):
        raise Refused("spec: is no object; write a pod's spec")
    for part in _LISTS:
        if not isinstance(spec.get(part), list | None):
            raise Refused(f"spec.{part}: is no list; write one such as [{{name: app, image: app:1}}]")
    every = [entry for part in _LISTS for entry in spec.get(part) or ()]
    _check_counts(spec, every, {"annotations": annotations, "labels": labels or {}})
    for name, text in annotations.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise Refused(f"annotation {name}: is no string; put it in quotes")
    _check_list(spec, "spec.", "volumes", "name", "[{name: data, emptyDir: {}}]")
    for container in every:
        if not (isinstance(container, dict) and isinstance(container.get("name"), str)):
            raise Refused("spec.containers: each must be an object with a name; add it")
        for field in _OF_CONTAINERS:
            _check_list(container, f"container {container['name']}: ", *field)
    if not spec.get("containers"):
        raise Refused("spec.containers: is empty; add the application's container")


def _check_counts(
    spec: Mapping[str, Any], every: list[Any], metadata: Mapping[str, Mapping[Any, Any]]
) -> None:
    for part, keys in metadata.items():
        _check_count(f"metadata.{part}", len(keys), MOST_KEYS)
    _check_count("spec.containers and spec.initContainers", len(every), MOST_CONTAINERS)
    lists = (
        container.get(field)
        for container in every
        if isinstance(container, dict)
        for field, *_ in _OF_CONTAINERS
    )
    entries = sum(
        len(entries_of_one)
        for entries_of_one in (spec.get("volumes"), *lists)
        if isinstance(entries_of_one, list)
    )
    _check_count("spec: variables, mounts, ports and volumes", entries, MOST_ENTRIES)


def _check_count(where: str, count: int, most: int) -> None:
    if count > most:
        raise Refused(f"{where}: there are {count}; a pod that gets an evaluator has at most {most}")


def _check_list(holder: Mapping[str, Any], where: str, field: str, known_by: str, example: str) -> None:
    entries = holder.get(field)
    if entries is None:
        return
    if not (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)):
        raise Refused(f"{where}{field}: is no list of objects; write one such as {example}")
    if not all(isinstance(entry.get(known_by), str | None) for entry in entries):
        raise Refused(f"{where}{field}: a {known_by} is no text; write it as in {example}")


def containers(pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Each container with its path, in the order in which they start."""
    for part in _LISTS:
        for number, container in enumerate(pod["spec"].get(part) or ()):
            yield ("spec", part, number), container


def mount_paths(container: Mapping[str, Any]) -> set[Any]:
    """The paths that volumes are mounted at."""
    return {mount.get("mountPath") for mount in container.get("volumeMounts") or ()}


def ports_of(container: Mapping[str, Any]) -> Iterator[int]:
    """The numbers that a container is known to listen on."""
    for port in container.get("ports") or ():
        if port.get("protocol", "TCP") == "TCP":
            number = port.get("containerPort")
            if isinstance(number, int):
                yield number
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        probe = container.get(name)
        for asked in probe.values() if isinstance(probe, dict) else ():
            if isinstance(asked, dict) and isinstance(asked.get("port"), int):
                yield asked["port"]


def require_containers(pod: Mapping[str, Any], chosen: frozenset[str] | None) -> None:
    """Raise Refused where the pod lacks a container that its annotation names."""
    present = {container["name"] for _, container in containers(pod)}
    for name in sorted((chosen or frozenset()) - present):
        raise Refused(
            f"annotation {well_known.CONTAINERS}: the pod has no container {name[:63]!r}; "
            f"it has {', '.join(sorted(present))}"
        )


def pod_warnings(pod: Mapping[str, Any], wanted: PodSettings) -> tuple[str, ...]:
    """Return warnings about problems of this pod."""
    messages: tuple[str, ...] = ()
    if wanted.options.compat:
        messages += (*taken_ports(pod, wanted),)
    security = pod["spec"].get("securityContext")
    if wanted.claim and not (isinstance(security, dict) and security.get("fsGroup")):
        messages += (
            f"annotation {well_known.STATE_CLAIM}: set fsGroup in the pod's securityContext, such as 65532, "
            "or the evaluator may not write there",
        )
    return messages


def taken_ports(pod: Mapping[str, Any], wanted: PodSettings) -> Iterator[str]:
    """The evaluator's ports that the application uses itself, with what to do."""
    by_number = {
        number: annotation
        for annotation, number in wanted.ports.items()
        if not (wanted.socket_path and annotation == well_known.PORT)
    }
    for _, container in containers(pod):
        for port in ports_of(container) if container["name"] != wanted.options.container else ():
            if port in by_number:
                yield (
                    f"container {container['name']}: uses port {port}, which is the evaluator's; "
                    f"give the evaluator another with the annotation {by_number[port]}"
                )
