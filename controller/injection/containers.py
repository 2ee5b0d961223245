"""The containers of a pod, as far as they can be read: its manifest may hold anything. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.injection import names
from controller.injection.options import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_LISTS: Final = ("initContainers", "containers")


def check_form(pod: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Raises Refused for what the other functions cannot read."""
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


def containers(pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Each container with its path, in the order in which they start."""
    for part in _LISTS:
        for number, each in enumerate(pod["spec"].get(part) or ()):
            yield ("spec", part, number), each


def name_of(body: Any) -> Any:
    """None where there is none."""
    return body.get("name") if isinstance(body, dict) else None


def mounted_at(container: Mapping[str, Any]) -> set[Any]:
    """The paths that volumes are mounted at."""
    return {each.get("mountPath") for each in container.get("volumeMounts") or () if isinstance(each, dict)}


def ports_of(container: Mapping[str, Any]) -> Iterator[int]:
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


def require_containers(pod: Mapping[str, Any], chosen: frozenset[str] | None) -> None:
    """Raises Refused where the pod lacks a container that its annotation names."""
    present = {each["name"] for _, each in containers(pod)}
    for name in sorted((chosen or frozenset()) - present):
        raise Refused(
            f"annotation {names.CONTAINERS}: the pod has no container {name[:63]!r}; "
            f"it has {', '.join(sorted(present))}"
        )
