"""What a pod's annotation names, among the objects that the controller knows. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from controller.api import configuration, flagset
from controller.api.meta import ObjectKey
from controller.injection import names
from controller.injection.options import FlagSetFound, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.api.meta import Resource
    from controller.runtime.cache import Cache

_KINDS: Final = (flagset.KIND, configuration.KIND, configuration.FLAG_KIND)
"""The first that has an object of the name is meant."""


def find(objects: Cache, namespaces: Sequence[str], namespace: str, name: str) -> FlagSetFound:
    """What `name` means to a pod in `namespace`. `namespaces` are those that the controller works in; empty:
    all. Raises Refused.
    """
    if namespaces and namespace not in namespaces:
        raise Refused(
            f"namespace {namespace}: the controller works in {', '.join(namespaces)} alone; add it to its "
            f"option --namespaces, or set {names.ENABLED} to false"
        )
    for kind in _KINDS:
        found = objects.get(ObjectKey(kind, namespace, name))
        if found is not None:
            return FlagSetFound(_target(found), f"{kind}/{name}", _revision(found))
    known = sorted({each.name for kind in _KINDS for each in objects.of_kind(kind, namespace)})
    near = difflib.get_close_matches(name, known[:1000], n=1)
    raise Refused(
        f"annotation {names.FLAG_SET}: namespace {namespace} has no FlagSet, FeatureFlagConfiguration or "
        f"FeatureFlag {name}; create it, or correct the name"
        + (f" (did you mean {near[0]}?)" if near else "")
    )


def _target(found: Resource) -> str:
    """The object that is served: a FlagSet may write one of another name."""
    target = found.spec.get("target") if found.key.kind == flagset.KIND else None
    own = target.get("name") if isinstance(target, dict) else None
    return own if isinstance(own, str) and own else found.name


def _revision(found: Resource) -> str:
    field = "lastAppliedRevision" if found.key.kind == flagset.KIND else "revision"
    return str(found.status.get(field) or "")
