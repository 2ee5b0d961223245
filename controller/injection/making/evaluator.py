"""What is made for one pod, whichever container its evaluator gets: ours, or OpenFeature Operator's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controller.api.configuration import FLAG_KIND
from controller.injection import names
from controller.injection.making import operators, sidecar
from controller.injection.making.mounts import mounted
from controller.injection.options import Refused
from controller.injection.reading import files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.injection.options import Known, Options
    from controller.injection.reading.wanted import Wanted


def check(wanted: Wanted, options: Options, known: Known) -> None:
    """Raise Refused where there would be nothing that the evaluator is to read."""
    for each in sorted(operators.direct(wanted, options)):
        place, _, name = each.partition("/")
        try:
            known.flag_set(place, name, (FLAG_KIND,))
        except Refused:
            raise Refused(
                f"FeatureFlagSource: provider kubernetes: namespace {place} has no FeatureFlag {name}, which "
                "flagd reads; create it, or add FeatureFlag to target.kinds of its FlagSet"
            ) from None
    if wanted.files and not options.flag_files:
        raise Refused(
            "FeatureFlagSource: provider file: the controller runs without --flag-files, so no ConfigMap has "
            "these flags; add the option, or write the provider kubernetes"
        )


def evaluator(wanted: Wanted, options: Options) -> dict[str, Any]:
    """The evaluator's container."""
    made = operators.container(wanted, options) if options.compat else sidecar.container(wanted, options)
    mounts = [each.mount for each in mounted(wanted, options)]
    return {**made, **({"volumeMounts": mounts} if mounts else {})}


def volumes(wanted: Wanted, options: Options) -> list[dict[str, Any]]:
    """What that container mounts."""
    return [each.volume for each in mounted(wanted, options)]


def variables(wanted: Wanted, options: Options) -> list[dict[str, Any]]:
    """The variables of the application's containers."""
    return operators.variables(wanted) if options.compat else sidecar.variables(wanted)


def marks(wanted: Wanted, options: Options, account: str | None) -> Iterator[tuple[str, str, str]]:
    """(labels or annotations, name, value) of a pod that the controller is to find."""
    yield from files.marks(wanted.files)
    read = operators.direct(wanted, options)
    asked = any(each.get("selector") not in read for each in wanted.follows if "provider" not in each)
    if asked or (wanted.files and not options.compat):
        yield from proxied(options)
    if read:
        yield "labels", names.FLAG_READER, "true"
        yield "annotations", names.FLAG_READER, account or "default"


def proxied(options: Options) -> Iterator[tuple[str, str, str]]:
    """As `marks`, of a pod that asks the proxy."""
    if options.proxy_on_demand:
        yield "labels", names.PROXIED, "true"
