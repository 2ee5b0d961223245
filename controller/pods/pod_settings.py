"""A pod's annotations, read and judged, and the flags that its evaluator follows. Pure."""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from controller.api import featureflagsource, inprocessconfiguration
from controller.api.featureflagconfiguration import FLAG_KIND
from controller.api.featureflagconfiguration import KIND as CONFIGURATION_KIND
from controller.api.featureflagsource import FeatureFlagSourceSpec
from controller.api.fields import InvalidSpecError
from controller.api.fields import read as parse_spec
from controller.api.inprocessconfiguration import InProcessConfigurationSpec
from controller.delivery.standing_orders import ORDER
from controller.pods import annotation_values as values
from controller.pods import installation
from controller.pods import source_settings as source
from controller.pods.annotation_values import NamedObject, PodReferences
from controller.pods.installation import FLAG_SETS, SERVED, Known, NotThere, Options, PodRefused, scope_of
from controller.pods.source_settings import restrict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.pods.flag_file import FlagFile


S = TypeVar("S", FeatureFlagSourceSpec, InProcessConfigurationSpec)

MOST_ENTRIES: Final = 200
"""In one field of a FeatureFlagSource or InProcessConfiguration: it is read anew for each pod."""


def read_followed(
    annotations: Mapping[str, str], referring: PodReferences, orders: str, *, compat: bool
) -> tuple[FeatureFlagSourceSpec, source.Followed, Mapping[str, str]]:
    """(the merged FeatureFlagSources that the pod names, what is followed, what the pod's record says of
    that). The flags that the pod's workload carries are the last source, which wins for each flag. They may
    come after the pod: the evaluator waits for them. `orders`: the selector of the pod's standing orders,
    which are the first source; empty: it has none. Raises Refused.
    """
    settings, follows, followed = _read_named(annotations, referring, ordered=bool(orders), compat=compat)
    name = values.direct_set(annotations)
    # The proxy lays the flags of the workload over its orders by itself.
    direct = f"{referring.namespace}/{name}" if name and (follows.sources or not orders) else ""
    both = {
        "flagSet": _list(orders, followed.get("flagSet"), direct),
        "from": _list(
            "standing orders" if orders else "",
            followed.get("from"),
            f"{CONFIGURATION_KIND}/{name}" if name else "",
        ),
    }
    first, last = ([{"selector": selector}] if selector else [] for selector in (orders, direct))
    sources = (*first, *follows.sources, *last)
    record = {**followed, **{field: text for field, text in both.items() if text}}
    return settings, follows._replace(sources=sources), record


def _list(*names: str | None) -> str:
    return ",".join(filter(None, names))


def _read_named(
    annotations: Mapping[str, str], referring: PodReferences, *, ordered: bool, compat: bool
) -> tuple[FeatureFlagSourceSpec, source.Followed, Mapping[str, str]]:
    """(settings, what is followed, what the pod's record says of that)."""
    namespace, known = referring.namespace, referring.known
    annotation = installation.sources(annotations)
    if not annotation:
        annotation, flag_sets = _flag_sets(annotations, referring, ordered=ordered)
        with _prefix_annotation(annotation):
            sets = [
                known.flag_set(reference.namespace, reference.name, reference.kinds)
                for reference in flag_sets
            ]
        selectors = [
            f"{reference.namespace}/{one.name}" for reference, one in zip(flag_sets, sets, strict=True)
        ]
        record = {
            "flagSet": ",".join(selectors),
            "from": ",".join(flag_set.source for flag_set in sets if flag_set.source),
            "revision": ",".join(flag_set.revision for flag_set in sets if flag_set.revision),
        }
        follows = source.Followed(tuple({"selector": selector} for selector in selectors), (), frozenset())
        return source.NOTHING, follows, {name: text for name, text in record.items() if text}
    if installation.FLAG_SET in annotations:
        raise PodRefused(
            f"annotation {installation.FLAG_SET}: {annotation} names flag sets already; remove one of the two"
        )
    asked, specs = read_specs(
        annotations[annotation], annotation, featureflagsource.KIND, FeatureFlagSourceSpec, referring
    )
    settings = source.merge(specs)
    if compat:
        settings = settings.model_copy(update={"env_vars": source.operators_variables(specs)})
    follows = source.follow_sources(settings, referring, compat=compat)
    return settings, follows, {
        "flagSet": ",".join(entry.get("uri") or entry["selector"] for entry in follows.sources),
        "from": ",".join(f"FeatureFlagSource/{reference.name_for(namespace)}" for reference in asked),
    }  # fmt: skip


@contextmanager
def _prefix_annotation(annotation: str) -> Iterator[None]:
    try:
        yield
    except NotThere as refusal:
        raise PodRefused(f"annotation {annotation}: {refusal}") from None


def read_specs(
    given: str, annotation: str, kind: str, model: type[S], referring: PodReferences
) -> tuple[list[NamedObject], list[S]]:
    """(what the annotation names by `given`, the spec of each). Raises Refused."""
    asked = referring.references(given, annotation, (kind,))
    specs = []
    for reference in asked:
        with _prefix_annotation(annotation):
            settings = referring.known.spec(kind, reference.namespace, reference.name)
        shown = f"{kind} {reference.name_for(referring.namespace)}"
        for field, entries in settings.items():
            if isinstance(entries, list | dict) and len(entries) > MOST_ENTRIES:
                raise PodRefused(
                    f"{shown}: {field[:63]}: has {len(entries)} entries; write at most {MOST_ENTRIES}"
                )
        try:
            spec = parse_spec(model, settings)
        except InvalidSpecError as error:
            raise PodRefused(f"{shown}: {error}; correct it") from None
        own = reference.namespace == referring.namespace
        specs.append(spec if own else restrict(spec, shown, referring.namespace))
    return asked, specs


def _flag_sets(
    annotations: Mapping[str, str], referring: PodReferences, *, ordered: bool
) -> tuple[str, list[NamedObject]]:
    """Return the annotation that names flag sets, and its value; `ordered`: there may be none."""
    given = annotations.get(installation.FLAG_SET, "").strip()
    if installation.FLAG_SET not in annotations and installation.OLD_FLAGS in annotations:
        return installation.OLD_FLAGS, referring.references(
            annotations[installation.OLD_FLAGS], installation.OLD_FLAGS, SERVED
        )
    if not given and installation.DIRECT_SET in annotations:
        return installation.DIRECT_SET, []
    if ordered and installation.FLAG_SET not in annotations:
        return ORDER, []
    if not given:
        raise PodRefused(
            f"annotation {installation.ENABLED} is true: name the flag set too, as in "
            f'{installation.FLAG_SET}: "checkout-production"'
        )
    return installation.FLAG_SET, [referring.reference(given, installation.FLAG_SET, FLAG_SETS)]


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
    installation.ON_MISSING,
    installation.START_DEADLINE,
    installation.STATE_CLAIM,
    installation.SYNC_PORT,
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
    return annotations.get(installation.ENABLED) in ("true", True)


def wants_evaluator(annotations: Mapping[str, Any], *, ordered: bool) -> bool:
    """Return whether the pod asks for an evaluator, or has standing orders and does not refuse it."""
    return is_enabled(annotations) or (ordered and installation.ENABLED not in annotations)


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
        installation.PORT: settings.port,
        installation.MANAGEMENT_PORT: settings.management_port,
        installation.OFREP_PORT: settings.ofrep_port,
    }
    wanted = PodSettings(
        options,
        follows.sources,
        followed,
        settings,
        containers=values.containers(annotations.get(installation.CONTAINERS)),
        image=values.image(annotations.get(installation.IMAGE_ANNOTATION)),
        resources=values.resources(annotations.get(installation.RESOURCES), default),
        log_level=values.choice(
            annotations.get(installation.LOG_LEVEL), installation.LOG_LEVEL, _LEVELS, level
        ),
        log_format=values.choice(settings.log_format, "FeatureFlagSource logFormat", _FORMATS, _FORMATS[0]),
        native=values.choice(
            annotations.get(installation.SIDECAR), installation.SIDECAR, _SIDECARS, _SIDECARS[0]
        )
        == _SIDECARS[0],
        ports=values.ports(annotations, {name: port for name, port in given.items() if port}),
        missing=values.choice(
            annotations.get(installation.ON_MISSING, settings.on_missing_flags),
            installation.ON_MISSING
            if installation.ON_MISSING in annotations
            else "FeatureFlagSource onMissingFlags",
            MISSING,
            WAIT,
        ),
        start_deadline=values.deadline(annotations.get(installation.START_DEADLINE), settings.start_deadline),
        socket_path=values.socket(annotations, settings.socket_path),
        claim=values.claim(annotations.get(installation.STATE_CLAIM)),
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
        except PodRefused:
            raise PodRefused(
                f"FeatureFlagSource: provider kubernetes: namespace {place} has no FeatureFlag {name}, which "
                "flagd reads; create it, or add FeatureFlag to target.kinds of its FlagSet"
            ) from None
    if wanted.files and not wanted.options.flag_files:
        raise PodRefused(
            "FeatureFlagSource: provider file: the controller runs without --flag-files, so no ConfigMap has "
            "these flags; add the option, or write the provider kubernetes"
        )


def read_in_process(
    annotations: Mapping[str, str], namespace: str, known: Known, *, compat: bool
) -> tuple[list[str], list[InProcessConfigurationSpec], frozenset[str] | None, PodReferences]:
    """(names of the pod's InProcessConfigurations, their specs, containers as in PodSettings, what it refers
    to). Raises Refused.
    """
    _check_names(annotations, compat=compat)
    referring = PodReferences(namespace, known)
    asked, specs = read_specs(
        annotations[installation.IN_PROCESS],
        installation.IN_PROCESS,
        inprocessconfiguration.KIND,
        InProcessConfigurationSpec,
        referring,
    )
    shown = [reference.name_for(namespace) for reference in asked]
    return shown, specs, values.containers(annotations.get(installation.CONTAINERS)), referring


def _check_names(annotations: Mapping[str, str], *, compat: bool) -> None:
    for name in annotations:
        if compat and name in _OURS_ALONE:
            raise PodRefused(
                f"annotation {name}: the controller runs with --compat {installation.OPERATORS}, whose "
                "evaluator has no such setting; remove it"
            )
        if name.startswith(installation.PREFIX) and name not in installation.KNOWN:
            known = [name.removeprefix(installation.PREFIX) for name in installation.ASKED]
            near = difflib.get_close_matches(name.removeprefix(installation.PREFIX)[:63], known, n=1)
            guess = (
                f"did you mean {installation.PREFIX}{near[0]}?" if near else f"there are {', '.join(known)}"
            )
            raise PodRefused(f"annotation {name[:253]}: unknown; {guess}")
