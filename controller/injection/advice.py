"""Warnings for the creator of a pod, and conflicts of the pod with the evaluator. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.injection import names, operators, source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.injection.options import Options
    from controller.injection.wanted import Wanted

LISTS: Final = ("initContainers", "containers")
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


def warnings(wanted: Wanted, options: Options) -> tuple[str, ...]:
    """What is asked for and not done, or will be regretted, whatever the pod is."""
    if options.compat:
        unused = source.warnings(wanted.settings, operators.KEPT)
        return (*wanted.warnings, *unused, *operators.warnings(wanted))
    return (*wanted.warnings, *source.warnings(wanted.settings))


def pod_warnings(pod: Mapping[str, Any], wanted: Wanted, options: Options) -> tuple[str, ...]:
    """The same, and what this pod will regret."""
    found = warnings(wanted, options)
    if options.compat:
        found += (*taken_ports(pod, wanted, options),)
    security = pod["spec"].get("securityContext")
    if wanted.claim and not (isinstance(security, dict) and security.get("fsGroup")):
        found += (
            f"annotation {names.STATE_CLAIM}: set fsGroup in the pod's securityContext, such as 65532, "
            "or the evaluator may not write there",
        )
    return found


def taken_ports(pod: Mapping[str, Any], wanted: Wanted, options: Options) -> Iterator[str]:
    """The evaluator's ports that the application uses itself, with what to do."""
    by_number = {
        number: annotation
        for annotation, number in wanted.ports.items()
        if not (wanted.socket_path and annotation == names.PORT)
    }
    for _, each in containers(pod):
        for port in _ports(each) if each["name"] != options.container else ():
            if port in by_number:
                yield (
                    f"container {each['name']}: uses port {port}, which is the evaluator's; "
                    f"give the evaluator another with the annotation {by_number[port]}"
                )


def containers(pod: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Each container with its path, in the order in which they start."""
    for part in LISTS:
        for number, each in enumerate(pod["spec"].get(part) or ()):
            yield ("spec", part, number), each


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
