"""A pod's annotations, read and judged. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from controller.api.openfeature import inprocessconfiguration
from controller.api.openfeature.featureflagconfiguration import FLAG_KIND
from controller.api.openfeature.inprocessconfiguration import InProcessConfigurationSpec
from controller.pods.settings import annotation_values as values
from controller.pods.settings import well_known
from controller.pods.settings.annotation_values import PodReferences
from controller.pods.settings.followed_flags import read_followed, read_specs
from controller.pods.settings.installation import Refused
from controller.pods.settings.remarks import scope_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.api.openfeature.featureflagsource import FeatureFlagSourceSpec
    from controller.pods.settings.flag_file import FlagFile
    from controller.pods.settings.installation import Known, Options
_FORMATS: Final = ("json", "console")
_SIDECARS: Final = ("native", "plain")
_LEVELS: Final = ("debug", "info", "warning", "error")
WAIT, START, FOREVER = MISSING = ("Wait", "Start", "Forever")
_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
"""Enough for some thousand flags; a limit of CPU would show as latency of every evaluation."""
_OPERATORS_RESOURCES: Final = {
    "requests": {"cpu": "200m", "memory": "32Mi"},
    "limits": {"cpu": "500m", "memory": "64Mi"},
}
"""The resources in the operator's manifests."""
_OURS_ALONE: Final = (
    well_known.ON_MISSING,
    well_known.START_DEADLINE,
    well_known.STATE_CLAIM,
    well_known.SYNC_PORT,
)
"""Annotations that have no effect on OpenFeature Operator's container."""


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The settings of one pod by its annotations, and the installation's options."""

    options: Options
    follows: tuple[Mapping[str, Any], ...]
    """Entries of the evaluator's `--sources`; those of the proxy have a `selector` alone."""
    followed: Mapping[str, str]
    """What is recorded in the pod about its flags: `flagSet`, `from`, `revision`, as far as each is known."""
    settings: FeatureFlagSourceSpec
    """The merged FeatureFlagSources that the pod names."""
    containers: frozenset[str] | None
    """The containers that get the evaluator's address; None: all."""
    image: str
    """The evaluator's image; empty: the installation's."""
    resources: Mapping[str, Mapping[str, Any]]
    log_level: str
    log_format: str
    native: bool
    """Whether the sidecar is an init container that stays (Kubernetes 1.29)."""
    ports: Mapping[str, int]
    """The ports by the annotation that changes each."""
    missing: str
    """What happens to an application without flags: one of MISSING."""
    start_deadline: float
    """The seconds after which `Wait` stops waiting."""
    socket_path: str
    """The Unix socket that evaluation uses in place of its port; empty: none."""
    claim: str
    """The PersistentVolumeClaim for the last good flags; empty: they are deleted with the pod."""
    warnings: tuple[str, ...] = ()
    """Warnings for the creator of the pod."""
    everywhere: bool = False
    """Whether other pods use this evaluator, too."""
    files: tuple[FlagFile, ...] = ()
    """The entries of `follows` that are files."""
    cluster_flags: frozenset[str] = frozenset()
    """The selectors in `follows` of flags that stock flagd could read from the API server."""
    scope: tuple[str, ...] = ()
    """How far the flags reach, in the words of remarks."""

    ordered: bool = False
    """Whether the first of `follows` are standing orders."""

    @property
    def direct(self) -> frozenset[str]:
        """Selectors of the FeatureFlags that the evaluator reads from the API server."""
        return self.cluster_flags if self.options.compat and self.options.flag_readers else frozenset()


def is_enabled(annotations: Mapping[str, Any]) -> bool:
    """Return whether the pod asks for an evaluator. A true that is not a string is reported later."""
    return annotations.get(well_known.ENABLED) in ("true", True)


def wants_evaluator(annotations: Mapping[str, Any], *, ordered: bool) -> bool:
    """Return whether the pod asks for an evaluator, or has standing orders and does not refuse it."""
    return is_enabled(annotations) or (ordered and well_known.ENABLED not in annotations)


def read(
    annotations: Mapping[str, str], namespace: str, options: Options, known: Known, orders: str = ""
) -> PodSettings:
    """Read a pod's annotations; `orders` is the selector of its standing orders. Raises Refused, also if
    there is nothing to follow.
    """
    compat = options.compat
    _check_names(annotations, compat=compat)
    referring = PodReferences(namespace, known)
    settings, follows, followed = read_followed(annotations, referring, orders, compat=compat)
    amounts = settings.resources or {}
    # Of the operator's, requests and limits are each replaced as a whole.
    theirs = {**_OPERATORS_RESOURCES, **{part: amount for part, amount in amounts.items() if amount}}
    default = theirs if compat else amounts or _RESOURCES
    level = "debug" if settings.debug_logging else "info"
    given = {
        well_known.PORT: settings.port,
        well_known.MANAGEMENT_PORT: settings.management_port,
        well_known.OFREP_PORT: settings.ofrep_port,
    }
    wanted = PodSettings(
        options,
        follows.sources,
        followed,
        settings,
        containers=values.containers(annotations.get(well_known.CONTAINERS)),
        image=values.image(annotations.get(well_known.IMAGE)),
        resources=values.resources(annotations.get(well_known.RESOURCES), default),
        log_level=values.choice(annotations.get(well_known.LOG_LEVEL), well_known.LOG_LEVEL, _LEVELS, level),
        log_format=values.choice(settings.log_format, "FeatureFlagSource logFormat", _FORMATS, _FORMATS[0]),
        native=values.choice(annotations.get(well_known.SIDECAR), well_known.SIDECAR, _SIDECARS, _SIDECARS[0])
        == _SIDECARS[0],
        ports=values.ports(annotations, {name: port for name, port in given.items() if port}),
        missing=values.choice(
            annotations.get(well_known.ON_MISSING, settings.on_missing_flags),
            well_known.ON_MISSING
            if well_known.ON_MISSING in annotations
            else "FeatureFlagSource onMissingFlags",
            MISSING,
            WAIT,
        ),
        start_deadline=values.deadline(annotations.get(well_known.START_DEADLINE), settings.start_deadline),
        socket_path=values.socket(annotations, settings.socket_path),
        claim=values.claim(annotations.get(well_known.STATE_CLAIM)),
        warnings=tuple(referring.warnings),
        files=follows.files,
        cluster_flags=follows.cluster_flags,
        scope=scope_of(follows.sources, namespace),
        ordered=bool(orders),
    )
    _require_flags(wanted, known)
    return wanted


def _require_flags(wanted: PodSettings, known: Known) -> None:
    """Raise Refused where there would be nothing that the evaluator is to read."""
    for selector in sorted(wanted.direct):
        place, _, name = selector.partition("/")
        try:
            known.flag_set(place, name, (FLAG_KIND,))
        except Refused:
            raise Refused(
                f"FeatureFlagSource: provider kubernetes: namespace {place} has no FeatureFlag {name}, which "
                "flagd reads; create it, or add FeatureFlag to target.kinds of its FlagSet"
            ) from None
    if wanted.files and not wanted.options.flag_files:
        raise Refused(
            "FeatureFlagSource: provider file: the controller runs without --flag-files, so no ConfigMap has "
            "these flags; add the option, or write the provider kubernetes"
        )


def read_in_process(
    annotations: Mapping[str, str], namespace: str, known: Known, *, compat: bool
) -> tuple[list[str], list[InProcessConfigurationSpec], frozenset[str] | None, PodReferences]:
    """(names of the pod's InProcessConfigurations, their specs, containers as in Wanted, what it refers to).
    Raises Refused.
    """
    _check_names(annotations, compat=compat)
    referring = PodReferences(namespace, known)
    asked, specs = read_specs(
        annotations[well_known.IN_PROCESS],
        well_known.IN_PROCESS,
        inprocessconfiguration.KIND,
        InProcessConfigurationSpec,
        referring,
    )
    shown = [reference.name_for(namespace) for reference in asked]
    return shown, specs, values.containers(annotations.get(well_known.CONTAINERS)), referring


def _check_names(annotations: Mapping[str, str], *, compat: bool) -> None:
    for name in annotations:
        if compat and name in _OURS_ALONE:
            raise Refused(
                f"annotation {name}: the controller runs with --compat {well_known.OPERATORS}, whose "
                "evaluator has no such setting; remove it"
            )
        if name.startswith(well_known.PREFIX) and name not in well_known.KNOWN:
            known = [name.removeprefix(well_known.PREFIX) for name in well_known.ASKED]
            near = difflib.get_close_matches(name.removeprefix(well_known.PREFIX)[:63], known, n=1)
            guess = f"did you mean {well_known.PREFIX}{near[0]}?" if near else f"there are {', '.join(known)}"
            raise Refused(f"annotation {name[:253]}: unknown; {guess}")
