"""The values of a pod's annotations, each read and judged by itself. Pure.

`given` is an annotation's text, None where the pod has none; every function raises Refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import TypeAdapter, ValidationError

from controller.api.fields import Duration
from controller.pods import installation
from controller.pods.installation import NAME, Known, PodRefused
from controller.runtime.plain_text import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping


MOST_NAMED: Final = 16
"""Objects in one annotation: each is read and judged anew for each pod."""
_QUANTITY: Final = re.compile(r"\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][\w./:@-]{0,500}", re.ASCII)
_DEADLINE: Final = TypeAdapter(Duration)
_LONGEST_START: Final = 3600.0
_SOCKET: Final = re.compile(r"(/[A-Za-z0-9_-][\w.-]*){3,}", re.ASCII)
_SOCKET_PATH: Final = "/var/run/flagd/flagd.sock"
_TRANSPORTS: Final = ("socket", "port")
_PORT: Final = _TRANSPORTS[1]
_SHARED: Final = frozenset(
    {"/var/run", "/var/lib", installation.TOKEN_PATH, installation.CA_PATH, installation.STATE_PATH}
)
"""Folders that hold more than a socket."""
_PORTS: Final = {
    installation.PORT: 8013,
    installation.MANAGEMENT_PORT: 8014,
    installation.SYNC_PORT: 8015,
    installation.OFREP_PORT: 8016,
}


def containers(given: str | None) -> frozenset[str] | None:
    """Names of the containers that get the evaluator's address; None: all."""
    if given is None:
        return None
    names = frozenset(name.strip() for name in given.split(",") if name.strip())
    if not names:
        raise PodRefused(
            f"annotation {installation.CONTAINERS}: names no container; "
            "remove it to have all of them know the evaluator"
        )
    return names


def image(given: str | None) -> str:
    """The evaluator's image; empty: the installation's."""
    problem = "no image; write one such as registry.example/evaluator:1.0"
    return _require_match(given, installation.IMAGE_ANNOTATION, _IMAGE, 100, problem)


def claim(given: str | None) -> str:
    """Name of the PersistentVolumeClaim of the last good flags; empty: none."""
    problem = "no object's name; write the name of a PersistentVolumeClaim"
    return _require_match(given, installation.STATE_CLAIM, NAME, 253, problem)


def _require_match(
    given: str | None, annotation: str, pattern: re.Pattern[str], shown: int, problem: str
) -> str:
    if given is not None and not pattern.fullmatch(given):
        raise PodRefused(f"annotation {annotation}: {given[:shown]!r} is {problem}")
    return given or ""


def resources(given: str | None, default: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The sidecar's requests and limits, from a JSON object."""
    if given is None:
        return default
    parsed = json_object(given)
    if parsed is None or not parsed.keys() <= {"requests", "limits"}:
        raise PodRefused(
            f"annotation {installation.RESOURCES}: must be a JSON object with requests, limits or both, "
            """such as {"requests":{"memory":"64Mi"}}"""
        )
    for part, amounts in parsed.items():
        if not isinstance(amounts, dict):
            raise PodRefused(
                f"annotation {installation.RESOURCES}: {part} must be an object of amounts by resource"
            )
        for resource, amount in amounts.items():
            if isinstance(amount, bool) or not _QUANTITY.fullmatch(str(amount)):
                raise PodRefused(
                    f"annotation {installation.RESOURCES}: {part}.{resource} is no amount; "
                    "write one such as 100m or 64Mi"
                )
    return parsed


def choice(given: str | None, where: str, allowed: tuple[str, ...], default: str) -> str:
    """Return a value if it is one of `allowed`; `where` names the annotation or the field in the message."""
    value = default if given is None else given
    if value not in allowed:
        subject = where if " " in where else f"annotation {where}"
        raise PodRefused(f"{subject}: is {value[:100]!r}; write one of {', '.join(allowed)}")
    return value


def ports(annotations: Mapping[str, str], settings: Mapping[str, int]) -> Mapping[str, int]:
    """Return the ports by the annotation that changes each; `settings` are the FeatureFlagSources'."""
    ports: dict[str, int] = {}
    for name, default in {**_PORTS, **settings}.items():
        given = annotations.get(name, str(default))
        if not (given.isascii() and given.isdigit() and 0 < int(given[:6]) < 65_536):
            raise PodRefused(f"annotation {name}: is {given[:100]!r}; write a port from 1 to 65535")
        other = next((name_of_other for name_of_other, number in ports.items() if number == int(given)), None)
        if other:
            raise PodRefused(
                f"annotation {name}: port {given} is that of {other} too; give each a port of its own"
            )
        ports[name] = int(given)
    return ports


def deadline(given: str | None, setting: float | None) -> float:
    """Seconds that an application waits for flags, an hour at most."""
    if given is None:
        return min(setting or 30.0, _LONGEST_START)
    try:
        return min(_DEADLINE.validate_python(given), _LONGEST_START)
    except ValidationError:
        raise PodRefused(
            f"annotation {installation.START_DEADLINE}: is {given[:100]!r}; write a duration such as "
            "30s or 1m"
        ) from None


def socket(annotations: Mapping[str, str], setting: str | None) -> str:
    """Path of the evaluator's socket; empty: none."""
    given = annotations.get(installation.SOCKET_PATH)
    asked = annotations.get(installation.TRANSPORT)
    transport = None if asked is None else choice(asked, installation.TRANSPORT, _TRANSPORTS, "")
    if transport == _PORT and given:
        raise PodRefused(
            f"annotation {installation.TRANSPORT}: is {_PORT}, and "
            f"{installation.SOCKET_PATH} names a socket; "
            "remove one of the two"
        )
    path = (setting or "") if given is None else given
    if transport:
        path = "" if transport == _PORT else path or _SOCKET_PATH
    if path and (
        len(path) > 100 or not _SOCKET.fullmatch(path) or path.rpartition("/")[0] in _SHARED
    ):  # A socket's path has 107 bytes at most.
        where = "FeatureFlagSource socketPath" if given is None else f"annotation {installation.SOCKET_PATH}"
        raise PodRefused(
            f"{where}: is {path[:100]!r}; write a path in a folder of its own, such as {_SOCKET_PATH}"
        )
    return path


def direct_set(annotations: Mapping[str, str]) -> str:
    """Name of the FeatureFlagConfiguration with the flags that the pod's workload carries; empty: none."""
    given = annotations.get(installation.DIRECT_SET)
    if given is None and installation.FLAGS in annotations:
        raise PodRefused(
            f"annotation {installation.FLAGS}: is read where a Deployment, StatefulSet, DaemonSet, Job or "
            "CronJob carries it, itself or on its pods' template; write one of these, or a "
            "FeatureFlagConfiguration"
        )
    return _require_match(given, installation.DIRECT_SET, NAME, 253, "no object's name; remove it")


class NamedObject(NamedTuple):
    """What an annotation names."""

    namespace: str
    name: str
    kinds: tuple[str, ...]
    """The kinds that the name may refer to."""

    def name_for(self, reader: str) -> str:
        """Return the object's name as pods of the namespace `reader` write it."""
        return self.name if self.namespace == reader else f"{self.namespace}/{self.name}"


class PodReferences:
    """What a pod refers to, and the warnings that come of it."""

    def __init__(self, namespace: str, known: Known) -> None:
        self.namespace = namespace
        self.known = known
        self.warnings: list[str] = []

    def reference(self, given: str, annotation: str, kinds: tuple[str, ...]) -> NamedObject:
        """The object that `given` names, `NAME` or `NAMESPACE/NAME`. Raises Refused."""
        place, slash, name = given.rpartition("/")
        where = f"annotation {annotation}"
        if not NAME.fullmatch(name) or (slash and not NAME.fullmatch(place)):
            kind = f"{'an' if kinds[0].startswith('I') else 'a'} {kinds[0]}"
            raise PodRefused(f"{where}: {given[:253]!r} is no object's name; write the name of {kind}")
        return NamedObject(place or self.namespace, name, self.permit(kinds, place, name, where))

    def references(self, given: str, annotation: str, kinds: tuple[str, ...]) -> list[NamedObject]:
        """The objects that `given` names, separated by commas. Raises Refused."""
        count = given.count(",") + 1
        if count > MOST_NAMED:
            raise PodRefused(f"annotation {annotation}: names {count} objects; name at most {MOST_NAMED}")
        return [self.reference(entry.strip(), annotation, kinds) for entry in given.split(",")]

    def permit(self, kinds: tuple[str, ...], place: str, name: str, where: str) -> tuple[str, ...]:
        """Return those of `kinds` that the pod may refer to in `place` (empty: its own). Raises Refused."""
        if place in {"", self.namespace}:
            return kinds
        try:
            allowed, warning = self.known.refer(self.namespace, kinds, place, name)
        except PodRefused as refusal:
            raise PodRefused(f"{where}: {refusal}") from None
        if warning:
            self.warnings.append(f"{where}: {warning}")
        return allowed
