"""The FlagSource and the FlagSet that a command line asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from controller.api import flagset, flagsource
from controller.api.flagset import FlagSetSpec, Validation
from controller.api.flagsource import FlagSourceSpec
from controller.api.objects.fields import Model, read
from controller.api.objects.meta import API_VERSION, ObjectKey
from controller.runtime.reconciling.setbacks import stall_on_invalid_text

if TYPE_CHECKING:
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
