"""What the author of a pod nearly asked for: annotations that are spelled, placed or valued so that nothing
reads them. Nothing is refused for it. Pure.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.delivery.standing_orders import SPELLINGS
from controller.pods.installation import ASKED, ENABLED, FLAGS, FOLLOWED, KNOWN, REMARKS, TRANSPORT
from controller.pods.pod_injection import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_PODS: Final = frozenset({ENABLED, TRANSPORT, *ASKED, *FOLLOWED})
"""Annotations that are read of pods alone."""
_OF_BOTH: Final = frozenset({FLAGS, *(name for spelling in SPELLINGS for name in spelling if name)})
"""Annotations that are read of pods, or of their workloads, too."""
_GROUPS: Final = ("openfeature.dev/", "flagstaff.dev/")
_YES: Final = frozenset({"true", "yes", "y", "on", "1", "enabled"})
_ALIKE: Final = 0.85


class NearMiss(NamedTuple):
    """One such annotation or label."""

    path: tuple[str, ...]
    """The path of its key."""
    message: str


def near_misses(manifest: object) -> Iterator[NearMiss]:
    """Yield those of a pod, a workload or a CronJob; none of any other manifest."""
    kind = str(manifest.get("kind")) if isinstance(manifest, dict) else ""
    path = TEMPLATES.get(kind)
    if path is None or not isinstance(manifest, dict):
        return
    pod = (*path, "metadata")
    yield from _values(manifest, pod)
    places = {pod, ("metadata",), *([("spec", "jobTemplate", "metadata")] if kind == "CronJob" else [])}
    for place in sorted(places):
        yield from _labels(manifest, place, pod)
        yield from _annotations(manifest, place, pod, kind)


def _values(manifest: Mapping[str, Any], pod: tuple[str, ...]) -> Iterator[NearMiss]:
    value = _texts(manifest, pod, "annotations").get(ENABLED)
    if isinstance(value, str) and value != "true" and value.strip().lower() in _YES:
        message = f'annotation {ENABLED} is {value!r}, and only "true" asks for an evaluator; write "true"'
        yield NearMiss((*pod, "annotations", ENABLED), message)


def _labels(manifest: Mapping[str, Any], place: tuple[str, ...], pod: tuple[str, ...]) -> Iterator[NearMiss]:
    for name in sorted(_texts(manifest, place, "labels").keys() & (_OF_PODS | _OF_BOTH)):
        message = f"label {name} is not read; write it as an annotation, at {'.'.join(pod)}.annotations"
        yield NearMiss((*place, "labels", name), message)


def _annotations(
    manifest: Mapping[str, Any], place: tuple[str, ...], pod: tuple[str, ...], kind: str
) -> Iterator[NearMiss]:
    given, of_pod = _texts(manifest, place, "annotations"), _texts(manifest, pod, "annotations")
    for name in sorted(map(str, given)):
        path = (*place, "annotations", name)
        if name in _OF_PODS and place != pod and name not in of_pod:
            message = f"annotation {name} of the {kind} is not read; move it to {'.'.join(pod)}.annotations"
            yield NearMiss(path, message)
        elif near := _meant(name):
            yield NearMiss(path, f"annotation {name} is not read; did you mean {near!r}?")


def _meant(name: str) -> str:
    """The annotation that a misspelt one is most like; empty for one that is known, or like none."""
    known = _OF_PODS | _OF_BOTH
    if not name.startswith(_GROUPS) or name in known or name in KNOWN or name == REMARKS:
        return ""
    return next(iter(difflib.get_close_matches(name[:100], sorted(known), n=1, cutoff=_ALIKE)), "")


def _texts(manifest: Mapping[str, Any], place: tuple[str, ...], field: str) -> Mapping[str, Any]:
    value: Any = manifest
    for step in (*place, field):
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
