"""Reports refused pods as Events of the flag set that they ask for, since there is no pod to report them
on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cachetools import TTLCache

from controller.api import flagset
from controller.api.kinds import FLAG_SET
from controller.api.meta import ObjectKey, Resource
from controller.injection import names
from controller.injection.options import FLAG_SETS
from controller.runtime.events import Occurrence, event_of
from controller.runtime.user_text.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from controller.runtime.events import EventSink
    from controller.runtime.objects.cache import Cache

REASON: Final = "InjectionRefused"
APART: Final = 60.0
"""Seconds between Events of a flag set, and between those of all in a namespace that are not there: a pod is
created again and again.
"""
_MOST: Final = 1_024
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SHOWN: Final = 1_000


@dataclass(slots=True)
class FlagSetRefusals:
    """Takes in what was refused."""

    objects: Cache
    sinks: Iterable[EventSink]
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Seconds; does not jump."""
    _reported: TTLCache[tuple[str, str], bool] = field(init=False)

    def __post_init__(self) -> None:
        self._reported = TTLCache(_MOST, APART, self.clock)

    def take(self, request: Mapping[str, Any], why: str) -> None:
        """`request`: of an AdmissionReview of a pod. Of one that asks for no flag set by name, Kubernetes
        alone reports, by an Event of the pod's owner.
        """
        meta = request["object"].get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        annotations, namespace = meta.get("annotations"), str(request.get("namespace", ""))
        name = str(annotations.get(names.FLAG_SET, "")) if isinstance(annotations, dict) else ""
        if not _NAME.fullmatch(name) or request.get("dryRun") is True:
            return
        found = [self.objects.get(ObjectKey(kind, namespace, name)) for kind in FLAG_SETS]
        thing = next((each for each in found if each is not None), None)
        known = (namespace, "" if thing is None else name)
        if known in self._reported:
            return
        self._reported[known] = True
        if thing is None:
            key = ObjectKey(flagset.KIND, namespace, name)
            thing = Resource(key, "", 0, "", api_version=FLAG_SET.api_version)
        pod = one_line(str(meta.get("name") or f"{meta.get('generateName') or ''}…"), 253)
        occurrence = Occurrence(REASON, f"pod {pod} is refused: {one_line(why, _SHOWN)}", warning=True)
        event = event_of(thing, occurrence, thing.status, self.now())
        for sink in self.sinks:
            sink.accept(event)
