"""The objects that a command line and its files ask for: a FlagSource, a FlagSet, rollouts and what these
name. Pure.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset, flagsource
from controller.api.fields import Model, read
from controller.api.flagset import FlagSetSpec, Validation
from controller.api.flagsource import FlagSourceSpec
from controller.api.kinds import FLAG_OVERRIDE, FLAG_ROLLOUT, METRIC_TEMPLATE, SECRET
from controller.api.meta import API_VERSION, ObjectKey
from controller.runtime.setbacks import Stalled, stall_on_invalid_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from controller.api.kind import ResourceType
    from controller.local.local_options import LocalOptions
    from controller.sources.backend import LocalBackend


NAMESPACE: Final = "local"
NAME: Final = "flags"
SOURCE: Final = ObjectKey(flagsource.KIND, NAMESPACE, NAME)
FLAG_SET: Final = ObjectKey(flagset.KIND, NAMESPACE, NAME)
INTERVAL: Final = "24h"
"""Of both objects: the provider says when the source is to be read."""


def flag_source(source: LocalBackend) -> dict[str, Any]:
    """The FlagSource of a source. Raises Stalled where the API server would refuse it."""
    return _object(flagsource.KIND, FlagSourceSpec, {"interval": INTERVAL, **source.spec})


def flag_set(options: LocalOptions) -> dict[str, Any]:
    """The FlagSet of that FlagSource. Raises Stalled where the API server would refuse it."""
    spec: dict[str, Any] = {
        "sourceRef": {"kind": flagsource.KIND, "name": NAME},
        "paths": [path or "." for path in options.paths],
        "validation": (Validation.LENIENT if options.lenient else Validation.STRICT).value,
        "failurePolicy": options.policy.value,
        "pruneGuard": options.prune_guard,
        "tests": {"mode": options.tests},
        "interval": INTERVAL,
    }
    if options.patches:
        spec["patches"] = [{"patch": patch.text} for patch in options.patches]
    if options.age_keys:
        spec["decryption"] = {"provider": "sops", "secretRef": {"name": NAME}}
    if options.substitute is not None:
        spec["substitute"] = dict(options.substitute)
    return _object(flagset.KIND, FlagSetSpec, spec)


def _object(kind: str, model: type[Model], spec: dict[str, Any]) -> dict[str, Any]:
    with stall_on_invalid_text():
        read(model, spec)
    # The same uid in each process: what one applied belongs to the FlagSet of the next.
    metadata = {"namespace": NAMESPACE, "name": NAME, "uid": kind}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


_ABOUT_FLAGS: Final = (FLAG_ROLLOUT.kind, FLAG_OVERRIDE.kind)
KINDS: Final = (FLAG_ROLLOUT, METRIC_TEMPLATE, FLAG_OVERRIDE)
"""What becomes an object. A file may hold Secrets, too; anything else in it is ignored."""


def rollout_objects(manifests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The objects of a file: in the namespace of local mode, about its flag set. Raises Stalled for a file
    without a FlagRollout, and for objects about several flag sets.
    """
    objects = [_local_object(manifest) for manifest in manifests if _is_one_of(KINDS, manifest)]
    if not any(manifest["kind"] == FLAG_ROLLOUT.kind for manifest in objects):
        raise Stalled("InvalidSpec", "--rollout: there is no FlagRollout in the file")
    about_flags = [manifest for manifest in objects if manifest["kind"] in _ABOUT_FLAGS]
    names = {manifest["spec"]["flagSetRef"]["name"] for manifest in about_flags}
    if len(names) > 1:
        sets = ", ".join(sorted(names))
        raise Stalled("InvalidSpec", f"--rollout: the file is about several flag sets ({sets}); leave one")
    for manifest in about_flags:
        manifest["spec"] = {**manifest["spec"], "flagSetRef": {"name": NAME}}
    return objects


def secrets_of(manifests: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, bytes]]:
    """The keys of each Secret in a file, by its name. Raises Stalled for one that cannot be read."""
    return {
        manifest["metadata"]["name"]: dict(_keys(manifest))
        for manifest in manifests
        if _is_one_of((SECRET,), manifest)
    }


def _is_one_of(kinds: Iterable[ResourceType], manifest: Mapping[str, Any]) -> bool:
    group = str(manifest["apiVersion"]).rpartition("/")[0]
    return any((group, manifest["kind"]) == (kind.group, kind.kind) for kind in kinds)


def _keys(secret: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    name, fields = secret["metadata"]["name"], {}
    for field in ("data", "stringData"):
        fields[field] = secret.get(field) or {}
        if not isinstance(fields[field], dict):
            raise Stalled("InvalidSecret", f"--rollout: {field} of Secret {name} must be fields")
    try:
        for key, text in fields["data"].items():
            yield key, base64.b64decode(str(text), validate=True)
    except ValueError:
        raise Stalled("InvalidSecret", f"--rollout: data of Secret {name} is no base64") from None
    for key, text in fields["stringData"].items():
        yield key, str(text).encode()


def _local_object(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a manifest in the namespace of local mode."""
    meta = manifest["metadata"]
    # The same uid in each process: what one wrote belongs to the object of the next.
    metadata = {
        "name": meta["name"],
        "namespace": NAMESPACE,
        "uid": f"{manifest['kind']}.{meta['name']}",
        "annotations": dict(meta.get("annotations") or {}),
    }
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": metadata,
        "spec": dict(manifest.get("spec") or {}),
    }
