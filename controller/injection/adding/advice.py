"""Warnings for the creator of a pod, and conflicts of the pod with the evaluator. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.injection import names
from controller.injection.adding.containers import containers, ports_of
from controller.injection.making import operators
from controller.injection.reading import source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.injection.options import Options
    from controller.injection.reading.wanted import Wanted


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
        for port in ports_of(each) if each["name"] != options.container else ():
            if port in by_number:
                yield (
                    f"container {each['name']}: uses port {port}, which is the evaluator's; "
                    f"give the evaluator another with the annotation {by_number[port]}"
                )
