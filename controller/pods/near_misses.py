"""What the author of a pod nearly asked for: annotations that are spelled, placed or valued so that nothing
reads them. Nothing is refused for it. Pure.
"""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.delivery.standing_orders import SPELLINGS
from controller.pods.installation import ASKED, ENABLED, FLAGS, FOLLOWED, KNOWN, REMARKS, TEMPLATES, TRANSPORT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_PODS: Final = frozenset({ENABLED, TRANSPORT, *ASKED, *FOLLOWED})
"""Annotations that are read of pods alone."""
_OF_BOTH: Final = frozenset({FLAGS, *(name for spelling in SPELLINGS for name in spelling if name)})
"""Annotations that are read of pods, or of their workloads, too."""
_READ: Final = _OF_PODS | _OF_BOTH
_READ_OR_WRITTEN: Final = _READ.union(KNOWN, (REMARKS,))
_GROUPS: Final = ("openfeature.dev/", "flagstaff.dev/")
_YES: Final = frozenset({"true", "yes", "y", "on", "1", "enabled"})
_ALIKE: Final = 0.85
_MOST_COMPARED: Final = 8
"""Unknown annotations of one place that are compared with those that are read: a review waits for it."""


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
    for name in sorted(_texts(manifest, place, "labels").keys() & _READ):
        message = f"label {name} is not read; write it as an annotation, at {'.'.join(pod)}.annotations"
        yield NearMiss((*place, "labels", name), message)


def _annotations(
    manifest: Mapping[str, Any], place: tuple[str, ...], pod: tuple[str, ...], kind: str
) -> Iterator[NearMiss]:
    given, of_pod = _texts(manifest, place, "annotations"), _texts(manifest, pod, "annotations")
    names = sorted(map(str, given))
    for name in names:
        if name in _OF_PODS and place != pod and name not in of_pod:
            message = f"annotation {name} of the {kind} is not read; move it to {'.'.join(pod)}.annotations"
            yield NearMiss((*place, "annotations", name), message)
    unknown = (name for name in names if name.startswith(_GROUPS) and name not in _READ_OR_WRITTEN)
    for name in islice(unknown, _MOST_COMPARED):
        for near in difflib.get_close_matches(name[:100], sorted(_READ), n=1, cutoff=_ALIKE):
            message = f"annotation {name} is not read; did you mean {near!r}?"
            yield NearMiss((*place, "annotations", name), message)


def _texts(manifest: Mapping[str, Any], place: tuple[str, ...], field: str) -> Mapping[str, Any]:
    value: Any = manifest
    for step in (*place, field):
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
