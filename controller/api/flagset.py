"""FlagSet: one flag set, built from layers of a source, and what it depends on."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from controller.api import kind as record
from controller.api.fields import (
    INT32,
    Duration,
    Interval,
    LocalReference,
    Model,
    Name,
    ObjectName,
    RuledModel,
    SpecProblem,
    SpecRule,
    in_schema,
    refuse,
    that,
)
from controller.api.flagset_status import FlagSetStatus
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.kube_config import KubeConfig
from controller.api.meta import API_VERSION, GROUP, ObjectKey, Resource
from controller.api.metrictemplate import MetricProvider
from controller.api.parsing import InvalidTextError, normalise
from controller.api.remote_provider import RemoteFlagProvider

if TYPE_CHECKING:
    from collections.abc import Iterator


DEPENDENCY_VARIABLES: Final = frozenset({"self", "dep"})
"""What a `readyExpr` may use."""


def _require_expression(text: str) -> None:
    # Reading one takes long to load, for the few flag sets that have any.
    from controller.api.expression_syntax import require  # noqa: PLC0415

    require(text, DEPENDENCY_VARIABLES)


class Dependency(Model):
    """An object of the namespace that must be ready first."""

    kind: Literal[
        "FlagSet", "FlagRollout", "FlagSource", "GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"
    ] = "FlagSet"
    """The object's kind. A FlagRollout must have [promoted](../waves.md) the same commit."""
    name: Name
    """The object's name."""
    ready_expr: Annotated[str, Field(min_length=1, max_length=1024), that(_require_expression)] | None = None
    """An expression in CEL over `self`, this FlagSet, and `dep`, the other object, that says whether that
    is ready, such as `has(dep.status.flags) && dep.status.flags > 0`; the condition Ready if it is not set.
    Of a FlagRollout, both count: the expression, and that the commit is promoted. All expressions together
    have at most 2,048 characters.
    """


_MOST_EXPRESSIONS: Final = 2_048
"""Characters of all expressions of a FlagSet: reading them takes up to two tenths of a second."""


def require_short_expressions(dependencies: Any) -> Any:
    """Return `dependencies`. Raises InvalidTextError for too long expressions before the first is read."""
    entries = dependencies if isinstance(dependencies, list | tuple) else ()
    texts = [entry.get("readyExpr") for entry in entries if isinstance(entry, dict)]
    if sum(len(text) for text in texts if isinstance(text, str)) > _MOST_EXPRESSIONS:
        raise InvalidTextError(f"all readyExpr together have more than {_MOST_EXPRESSIONS} characters")
    return dependencies


KIND: Final = "FlagSet"
FINALIZER: Final = "flagstaff.dev/remote-objects"
"""The finalizer of a FlagSet with objects in another cluster: Kubernetes does not delete these with it."""
LABEL: Final = "flagstaff.dev/flagset"
"""The label on every object that a FlagSet writes; its value is the FlagSet's name."""
MANAGER_PREFIX: Final = "flagstaff-flagset/"
"""How the name of a FlagSet's field manager begins."""
_MANAGER: Final = 128
"""Characters that a field manager's name may have."""

SOURCE_API: Final = {
    "FlagSource": API_VERSION,
    "GitRepository": "source.toolkit.fluxcd.io/v1",
    "OCIRepository": "source.toolkit.fluxcd.io/v1",
    "Bucket": "source.toolkit.fluxcd.io/v1",
    "ExternalArtifact": "source.toolkit.fluxcd.io/v1",
}
"""Kinds that a sourceRef may name, with the version that is read where it names none."""

SourceKind = Literal["FlagSource", "GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"]
Path = Annotated[str, Field(min_length=1, max_length=1024)]
Variable = Annotated[str, Field(pattern="^[_A-Za-z][_A-Za-z0-9]*$", max_length=253)]
LabelName = Annotated[str, Field(pattern="^[_A-Za-z][_A-Za-z0-9]*$", max_length=253)]
VariableText = Annotated[str, Field(max_length=65536)]


class Validation(StrEnum):
    """What a warning is worth."""

    STRICT = "Strict"
    LENIENT = "Lenient"


class DriftPolicy(StrEnum):
    """What becomes of a change that another made to what was written."""

    CORRECT = "Correct"
    WARN = "Warn"
    """Another's change stays, and is reported, until it is undone or new content is written."""


class TestMode(StrEnum):
    """What a failing test of flags is worth."""

    __test__ = False

    REQUIRE = "Require"
    WARN = "Warn"
    OFF = "Off"


class SourceReference(Model):
    """The source whose artifact the definitions are read from."""

    api_version: Annotated[str, Field(max_length=253)] | None = None
    """The group and version of the kind; needed for none of the kinds."""
    kind: SourceKind
    """A FlagSource, or one of Flux's sources."""
    name: Name
    """The source's name."""
    namespace: Annotated[str, Field(max_length=63)] | None = None
    """The namespace of the source: the FlagSet's own if it is not set. Another one must admit the FlagSet
    by a [FlagGrant](flaggrant.md).
    """

    @model_validator(mode="after")
    def _is_of_its_group(self) -> Self:
        group = SOURCE_API[self.kind].partition("/")[0]
        if self.api_version is not None and self.api_version.partition("/")[0] != group:
            refuse([SpecProblem("apiVersion", f"a {self.kind} belongs to the API group {group}")])
        return self


class SubstituteReference(Model):
    """An object of the namespace whose keys are variables."""

    kind: Literal["ConfigMap", "Secret"]
    """The kind of the object. Flags with values from a Secret are marked."""
    name: ObjectName
    """The object's name."""
    optional: bool = False
    """Whether the object may be missing."""


class PatchSpec(Model):
    """One JSON Patch."""

    patch: Annotated[str, Field(min_length=1, max_length=65536)]
    """A [JSON Patch](../reference/building.md#patches) (RFC 6902) as YAML or JSON, over `/flags/KEY`,
    `/$evaluators/NAME` and `/metadata/KEY`.
    """


class FlagTestsSpec(Model):
    """What becomes of flags whose tests fail."""

    # A set whose source has no tests is built as before, whatever this says; `Warn` holds nothing back that
    # was served before the field was there.
    mode: TestMode = TestMode.WARN
    """`Require`: a flag keeps its last good definition where a test of it fails; with `failurePolicy: Atomic`
    the whole revision is refused. `Warn`: failing tests are problems in the status, and hold nothing. `Off`:
    tests are not read.
    """
    min_coverage: Annotated[int, Field(ge=0, le=100), INT32] | None = None
    """The least share, in percent, of variants and branches that tests reach. A revision whose tests reach
    less is refused with `Require`, and reported with `Warn`.
    """


class DeletionGuard(RuledModel):
    """When a flag that a revision deletes stays, since applications ask for it."""

    RULES = (
        SpecRule(
            "self.provider.type == 'prometheus'",
            "the metrics of evaluators are read from a provider of type prometheus",
            lambda guard: guard.provider.type == "prometheus",
        ),
    )

    requested_within: Annotated[Duration, Field(ge=60, le=31_536_000)]
    """A flag stays at its last good definition if evaluators were asked for it in this time, such as `168h`,
    or as long as that cannot be told.
    """
    provider: MetricProvider
    """The Prometheus that has the evaluators' metrics, with the fields of a
    [MetricTemplate](metrictemplate.md).
    """
    labels: dict[LabelName, Annotated[str, Field(max_length=253)]] = Field(
        default_factory=dict, max_length=16
    )
    """Labels that the metrics must have, such as `namespace: shop`. Without them, requests for a flag of the
    same key in another flag set count, too.
    """


class DecryptionSpec(Model):
    """How encrypted definitions are read."""

    provider: Literal["sops"]
    """How the definitions were encrypted."""
    secret_ref: LocalReference
    """A Secret in the same namespace with age identities, under keys that end with `.agekey`, or secret PGP
    keys, under keys that end with `.asc`.
    """


class Target(Model):
    """What is written."""

    name: ObjectName | None = None
    """The name of what is written, in the FlagSet's namespace; the FlagSet's own if it is not set."""
    kinds: Annotated[
        tuple[Literal["FeatureFlagConfiguration", "FeatureFlag"], ...],
        Field(min_length=1, max_length=2),
        in_schema(x_kubernetes_list_type="set"),
    ] = ("FeatureFlagConfiguration",)
    """The kinds that are written. The proxy and our evaluators read FeatureFlagConfiguration; stock flagd
    reads FeatureFlag.
    """


class FlagSetSpec(Model):
    """What the user asks for."""

    source_ref: SourceReference
    """The source whose artifact holds the definitions."""
    paths: Annotated[tuple[Path, ...], Field(min_length=1, max_length=32)] = (".",)
    """The layers, base first. Each is a file, a folder (its `*.json`, `*.yaml` and `*.yml` files; with
    `/**` those of its subfolders, too) or a glob. See [how layers merge](../definitions.md).
    """
    flag_set_id: Name | None = None
    """The identity of the set for selectors, if the metadata of the definitions has none;
    `<namespace>/<name>` if it is not set.
    """
    validation: Validation = Validation.STRICT
    """`Strict`: a warning counts as a failure. `Lenient`: what flagd would serve is served."""
    failure_policy: Literal["PerFlag", "Atomic"] = "PerFlag"
    """`PerFlag`: a bad flag keeps its last good definition while other flags are updated. `Atomic`: the
    whole revision is refused.
    """
    bucketing: Literal["v2", "v3"] = "v2"
    """The generation of `fractional` that the set is meant for, if its metadata names none."""
    target: Annotated[Target, in_schema(x_default={})] = Target()
    """What is written."""
    prune: bool = True
    """Whether what was written is deleted with the FlagSet, and when the target is renamed."""
    prune_guard: bool = True
    """Whether a revision that would remove every flag, or more than a quarter and at least five of them,
    [waits](#what-to-do-when-it-fails) until the annotation `flagstaff.dev/accept-revision` names it.
    """
    deletion_guard: DeletionGuard | None = None
    """Keeps [flags that are asked for](../flag-life.md#deleting-a-flag) from being deleted."""
    tests: Annotated[FlagTestsSpec, in_schema(x_default=None)] = FlagTestsSpec()
    """What becomes of flags whose [tests](../authoring.md#in-a-cluster), the `*.flagtest.yaml` beside the
    definitions, fail.
    """
    patches: Annotated[tuple[PatchSpec, ...], Field(max_length=32)] = ()
    """Changes to what the layers make, in their order, before it is validated."""
    substitute: Annotated[dict[Variable, VariableText], Field(max_length=256)] | None = None
    """Values of [variables](../reference/building.md#variables) by name: `${NAME}` in a value of the
    definitions is replaced, as is `${NAME:=default}`, and `$${` is the text `${`. Without this and
    `substituteFrom`, nothing is replaced.
    """
    substitute_from: Annotated[tuple[SubstituteReference, ...], Field(max_length=32)] = ()
    """ConfigMaps and Secrets in the same namespace whose keys are variables, too. A later one has priority
    over an earlier one, and `substitute` over all.
    """
    decryption: DecryptionSpec | None = None
    """How [encrypted definitions](../reference/building.md#encrypted-definitions) are decrypted."""
    drift_policy: DriftPolicy = DriftPolicy.CORRECT
    """`Correct`: a change to what was written is undone. `Warn`: the change is kept [and
    reported](#what-is-written), until new content is written.
    """
    remote_flag_provider: RemoteFlagProvider | None = None
    """A [remote provider](../remote-providers.md) whose flags are merged with these, or override them. The
    FeatureFlagConfiguration is written with this field; a FeatureFlag has the FlagSet's own flags alone.
    """
    kube_config: KubeConfig | None = None
    """The [cluster](../remote-clusters.md) that is written to; this one if it is not set."""
    service_account_name: ObjectName | None = None
    """The service account in the same namespace with whose rights the FlagSet writes
    ([tenants](../tenants.md#acting-as-a-service-account)); the controller's
    [default](../reference/controller-settings.md#settings) if it is not set. With `kubeConfig`, an account
    of that cluster; the kubeconfig's own user if it is not set.
    """
    depends_on: Annotated[
        tuple[Dependency, ...], Field(max_length=32), BeforeValidator(require_short_expressions)
    ] = ()
    """FlagSets, FlagRollouts and sources in the same namespace that must be Ready first. A FlagSet of the
    same source must have applied the same revision. Rules may [need
    flags](../reference/prerequisites.md) of these FlagSets.
    """
    interval: Interval = 600.0
    """How often what was written is compared with what it should be, at least half a second. New artifacts
    and changes by hand are noticed at once.
    """
    suspend: bool = False
    """Build, write and correct nothing; what was applied is kept."""

    @property
    def local_account(self) -> str | None:
        """The service account in the FlagSet's own cluster; None: the default one."""
        return self.service_account_name if self.kube_config is None else None

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """Paths that lead out of the source, which a build reports among its problems."""
        for index, path in enumerate(self.paths):
            try:
                normalise(path)
            except InvalidTextError as error:
                yield SpecProblem(f"spec.paths.{index}", str(error))


def source_key(flag_set: Resource) -> ObjectKey | None:
    """The source: in its own namespace unless it names another; None where there is no `sourceRef`."""
    reference = flag_set.spec.get("sourceRef")
    if not isinstance(reference, dict):
        return None
    namespace = str(reference.get("namespace") or flag_set.namespace)
    return ObjectKey(str(reference.get("kind")), namespace, str(reference.get("name")))


def writer_key(written: Resource) -> ObjectKey:
    """Return the FlagSet that writes an object; its name is empty where none does."""
    return ObjectKey(KIND, written.namespace, proven_writer(written))


def manager_of(flag_set: ObjectKey) -> str:
    """Return a FlagSet's own field manager, so that two FlagSets conflict and do not overwrite each other."""
    name = f"{MANAGER_PREFIX}{flag_set.namespace}/{flag_set.name}"
    if len(name) <= _MANAGER:
        return name
    return f"{name[: _MANAGER - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def proven_writer(written: Resource) -> str:
    """Return the name of the FlagSet that an object belongs to by label, and by owner reference or, where the
    FlagSet does not prune, by field manager; empty: none. The label alone proves nothing: whoever writes the
    object may set it.
    """
    name = written.labels.get(LABEL, "")
    owned = any(
        (owner.get("kind"), owner.get("name")) == (KIND, name)
        and str(owner.get("apiVersion")).startswith(f"{GROUP}/")
        for owner in written.owners
    )
    return name if owned or manager_of(ObjectKey(KIND, written.namespace, name)) in written.managers else ""


def target_name(flag_set: Resource) -> str:
    """The name of what the FlagSet writes."""
    target = flag_set.spec.get("target")
    name = target.get("name") if isinstance(target, dict) else None
    return str(name or flag_set.name)


def delivers_elsewhere(flag_set: Resource | None) -> bool:
    """Whether a FlagSet writes to another cluster."""
    return flag_set is not None and isinstance(flag_set.spec.get("kubeConfig"), dict)


def owned_by_flag_set(written: Resource) -> bool:
    """Whether a FlagSet of the same cluster owns an object, by reference."""
    return any(owner.get("kind") == KIND for owner in written.owners)


def list_items(flag_set: Resource, field: str) -> list[dict[str, Any]]:
    """The objects in a list of the spec, as far as it can be read."""
    entries = flag_set.spec.get(field)
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


RECORD: Final = Kind(
    API_VERSION,
    KIND,
    "flagsets",
    short_name="fset",
    description=(
        "FlagSet builds one flag set from layers of a source and keeps a FeatureFlagConfiguration of it."
    ),
    spec=FlagSetSpec,
    spec_description="Which definitions are read, and what is made of them.",
    status=FlagSetStatus,
    columns=(
        READY_COLUMN,
        PrinterColumn("Revision", ".status.lastAppliedRevision"),
        PrinterColumn("Since", ".status.history[0].appliedAt", "date"),
        PrinterColumn("Flags", ".status.flags", "integer"),
        PrinterColumn("Served", ".status.served"),
        *record.WITHHELD_COLUMNS,
        record.SUSPENDED_COLUMN,
        AGE_COLUMN,
        record.STATUS_COLUMN,
        PrinterColumn("Held", ".status.heldFlags", "integer", priority=1),
        PrinterColumn("Source", ".spec.sourceRef.name", priority=1),
    ),
    rules=(
        SpecRule(
            "self.metadata.name.size() <= 63",
            "a FlagSet's name is a label on what it writes, and a label has at most 63 characters",
        ),
    ),
    rights=(*record.RECONCILED, record.SHOWN_BY_PAGE, record.FOLLOWED_BY_ADMISSION),
    modules="flagsets delivery",
    quota=50,
    is_granted=True,
    has_alerts=True,
)
