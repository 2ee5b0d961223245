"""What a pod's evaluator follows, by the annotations that name it. Pure."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from controller.api.objects.fields import InvalidSpecError
from controller.api.objects.fields import read as parse_spec
from controller.api.openfeature import featureflagsource
from controller.api.openfeature.featureflagconfiguration import KIND as CONFIGURATION_KIND
from controller.api.openfeature.featureflagsource import FeatureFlagSourceSpec
from controller.api.openfeature.inprocessconfiguration import InProcessConfigurationSpec
from controller.delivery.standing_orders import ORDER
from controller.pods.settings import annotation_values as values
from controller.pods.settings import source_settings as source
from controller.pods.settings import well_known
from controller.pods.settings.foreign_settings import restrict
from controller.pods.settings.installation import FLAG_SETS, SERVED, NotThere, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.pods.settings.annotation_values import NamedObject, PodReferences

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
    annotation = well_known.sources(annotations)
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
    if well_known.FLAG_SET in annotations:
        raise Refused(
            f"annotation {well_known.FLAG_SET}: {annotation} names flag sets already; remove one of the two"
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
        raise Refused(f"annotation {annotation}: {refusal}") from None


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
                raise Refused(
                    f"{shown}: {field[:63]}: has {len(entries)} entries; write at most {MOST_ENTRIES}"
                )
        try:
            spec = parse_spec(model, settings)
        except InvalidSpecError as error:
            raise Refused(f"{shown}: {error}; correct it") from None
        own = reference.namespace == referring.namespace
        specs.append(spec if own else restrict(spec, shown, referring.namespace))
    return asked, specs


def _flag_sets(
    annotations: Mapping[str, str], referring: PodReferences, *, ordered: bool
) -> tuple[str, list[NamedObject]]:
    """Return the annotation that names flag sets, and its value; `ordered`: there may be none."""
    given = annotations.get(well_known.FLAG_SET, "").strip()
    if well_known.FLAG_SET not in annotations and well_known.OLD_FLAGS in annotations:
        return well_known.OLD_FLAGS, referring.references(
            annotations[well_known.OLD_FLAGS], well_known.OLD_FLAGS, SERVED
        )
    if not given and well_known.DIRECT_SET in annotations:
        return well_known.DIRECT_SET, []
    if ordered and well_known.FLAG_SET not in annotations:
        return ORDER, []
    if not given:
        raise Refused(
            f"annotation {well_known.ENABLED} is true: name the flag set too, as in "
            f'{well_known.FLAG_SET}: "checkout-production"'
        )
    return well_known.FLAG_SET, [referring.reference(given, well_known.FLAG_SET, FLAG_SETS)]
