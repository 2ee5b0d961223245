"""A pod's annotations, read and judged. Pure."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.injection import names
from controller.injection.options import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_QUANTITY: Final = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][\w./:@-]{0,500}", re.ASCII)
_LEVELS: Final = ("debug", "info", "warning", "error")
_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
"""Enough for some thousand flags; a limit of CPU would show as latency of every evaluation."""
_PORTS: Final = {names.PORT: 8013, names.MANAGEMENT_PORT: 8014, names.SYNC_PORT: 8015, names.OFREP_PORT: 8016}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one pod asks for."""

    flag_set: str
    """The name that the annotation gives, in the pod's namespace."""
    containers: frozenset[str] | None
    """Those that are told where the evaluator is; None: all."""
    image: str
    """Empty: the installation's."""
    resources: Mapping[str, Mapping[str, Any]]
    log_level: str
    native: bool
    """Whether the sidecar is an init container that stays (Kubernetes 1.29)."""
    ports: Mapping[str, int]
    """By the annotation that changes each."""


def is_enabled(annotations: Mapping[str, Any]) -> bool:
    """Whether the pod asks for an evaluator at all. A true that is no string is told of later."""
    return annotations.get(names.ENABLED) in {"true", True}


def read(annotations: Mapping[str, str], namespace: str) -> Wanted:
    """What the annotations of a pod in `namespace` ask for. Raises Refused."""
    _check_names(annotations)
    return Wanted(
        flag_set=_flag_set(annotations, namespace),
        containers=_containers(annotations.get(names.CONTAINERS)),
        image=_image(annotations.get(names.IMAGE)),
        resources=_resources(annotations.get(names.RESOURCES)),
        log_level=_choice(annotations, names.LOG_LEVEL, _LEVELS, "info"),
        native=_choice(annotations, names.SIDECAR, ("native", "plain"), "native") == "native",
        ports=_ports(annotations),
    )


def _check_names(annotations: Mapping[str, str]) -> None:
    for name in annotations:
        if name.startswith(names.PREFIX) and name not in names.KNOWN:
            known = [each.removeprefix(names.PREFIX) for each in names.KNOWN]
            near = difflib.get_close_matches(name.removeprefix(names.PREFIX), known, n=1)
            guess = f"did you mean {names.PREFIX}{near[0]}?" if near else f"there are {', '.join(known[:-1])}"
            raise Refused(f"annotation {name}: unknown; {guess}")


def _flag_set(annotations: Mapping[str, str], namespace: str) -> str:
    given = annotations.get(names.FLAG_SET, "").strip()
    if not given:
        other = next((each for each in names.UNSUPPORTED if each in annotations), None)
        why = f"annotation {other} is not supported" if other else f"annotation {names.ENABLED} is true"
        raise Refused(f'{why}: name the flag set too, as in {names.FLAG_SET}: "checkout-production"')
    where, _, name = given.rpartition("/")
    if where not in {"", namespace}:
        raise Refused(
            f"annotation {names.FLAG_SET}: {given[:253]!r} is in another namespace than the pod, "
            f"which is in {namespace}; give the pod's namespace a FlagSet of its own"
        )
    if not _NAME.fullmatch(name):
        raise Refused(
            f"annotation {names.FLAG_SET}: {given[:253]!r} is no object's name; write the name of a FlagSet"
        )
    return name


def _containers(given: str | None) -> frozenset[str] | None:
    if given is None:
        return None
    found = frozenset(each.strip() for each in given.split(",") if each.strip())
    if not found:
        raise Refused(
            f"annotation {names.CONTAINERS}: names no container; "
            "remove it to have all of them know the evaluator"
        )
    return found


def _image(given: str | None) -> str:
    if given is not None and not _IMAGE.fullmatch(given):
        raise Refused(
            f"annotation {names.IMAGE}: {given[:100]!r} is no image; "
            "write one such as registry.example/evaluator:1.0"
        )
    return given or ""


def _resources(given: str | None) -> Mapping[str, Mapping[str, Any]]:
    if given is None:
        return _RESOURCES
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if not (isinstance(found, dict) and found.keys() <= {"requests", "limits"}):
        raise Refused(
            f"annotation {names.RESOURCES}: must be a JSON object with requests, limits or both, "
            """such as {"requests":{"memory":"64Mi"}}"""
        )
    for part, amounts in found.items():
        if not isinstance(amounts, dict):
            raise Refused(f"annotation {names.RESOURCES}: {part} must be an object of amounts by resource")
        for resource, amount in amounts.items():
            if isinstance(amount, bool) or not _QUANTITY.fullmatch(str(amount)):
                raise Refused(
                    f"annotation {names.RESOURCES}: {part}.{resource} is no amount; "
                    "write one such as 100m or 64Mi"
                )
    return found


def _choice(annotations: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    given = annotations.get(name, default)
    if given not in allowed:
        raise Refused(f"annotation {name}: is {given[:100]!r}; write one of {', '.join(allowed)}")
    return given


def _ports(annotations: Mapping[str, str]) -> Mapping[str, int]:
    ports: dict[str, int] = {}
    for name, default in _PORTS.items():
        given = annotations.get(name, str(default))
        if not (given.isascii() and given.isdigit() and 0 < int(given[:6]) < 65_536):
            raise Refused(f"annotation {name}: is {given[:100]!r}; write a port from 1 to 65535")
        other = next((each for each, number in ports.items() if number == int(given)), None)
        if other:
            raise Refused(
                f"annotation {name}: port {given} is that of {other} too; give each a port of its own"
            )
        ports[name] = int(given)
    return ports
