"""FlagSet: one flag set, built from layers of a source."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, OnErrorOmit, model_validator
from pydantic.alias_generators import to_camel

from controller.api.objects.fields import (
    Interval,
    LocalReference,
    Model,
    Name,
    ObjectName,
    SpecProblem,
    refuse,
    that,
)
from controller.api.objects.meta import API_VERSION, ObjectKey
from controller.api.objects.status import Status
from controller.api.parsing import InvalidTextError
from controller.api.parsing.names import normalise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.api.objects.meta import Resource

KIND: Final = "FlagSet"
LABEL: Final = "flagstaff.dev/flagset"
"""The label on every object that a FlagSet writes; its value is the FlagSet's name."""

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
VariableText = Annotated[str, Field(max_length=65536)]


DEPENDENCY_VARIABLES: Final = frozenset({"self", "dep"})
"""What a `readyExpr` may use."""


def _ready_expr(text: str) -> None:
    # Reading one takes long to load, for the few flag sets that have any.
    from controller.api.parsing.expression_syntax import require  # noqa: PLC0415

    require(text, DEPENDENCY_VARIABLES)


class Validation(StrEnum):
    """What a warning is worth."""

    STRICT = "Strict"
    LENIENT = "Lenient"


class DriftPolicy(StrEnum):
    """What becomes of a change that another made to what was written."""

    CORRECT = "Correct"
    WARN = "Warn"
    """Another's change stays, and is reported, until it is undone or new content is written."""


class SourceReference(Model):
    """The source whose artifact the definitions are read from."""

    api_version: Annotated[str, Field(max_length=253)] | None = None
    kind: SourceKind
    name: Name
    namespace: Annotated[str, Field(max_length=63)] | None = None

    @model_validator(mode="after")
    def _is_of_its_group(self) -> Self:
        group = SOURCE_API[self.kind].partition("/")[0]
        if self.api_version is not None and self.api_version.partition("/")[0] != group:
            refuse([SpecProblem("apiVersion", f"a {self.kind} belongs to the API group {group}")])
        return self


class SubstituteReference(Model):
    """An object of the namespace whose keys are variables."""

    kind: Literal["ConfigMap", "Secret"]
    name: ObjectName
    optional: bool = False


class Dependency(Model):
    """An object of the namespace that must be ready first."""

    kind: Literal["FlagSet", "FlagSource", "GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"] = (
        "FlagSet"
    )
    name: Name
    ready_expr: Annotated[str, Field(min_length=1, max_length=1024), that(_ready_expr)] | None = None
    """CEL over `self`, the FlagSet, and `dep`, the other object; in place of the built-in check."""


_MOST_EXPRESSIONS: Final = 2_048
"""Characters of all expressions of a FlagSet: reading them takes up to two tenths of a second."""


def _bounded_expressions(listed: Any) -> Any:
    """Refuse too long expressions before the first of them is read."""
    entries = listed if isinstance(listed, list | tuple) else ()
    texts = [entry.get("readyExpr") for entry in entries if isinstance(entry, dict)]
    if sum(len(text) for text in texts if isinstance(text, str)) > _MOST_EXPRESSIONS:
        raise InvalidTextError(f"all readyExpr together have more than {_MOST_EXPRESSIONS} characters")
    return listed


class PatchSpec(Model):
    """One JSON Patch."""

    patch: Annotated[str, Field(min_length=1, max_length=65536)]


class DecryptionSpec(Model):
    """How encrypted definitions are read."""

    provider: Literal["sops"]
    secret_ref: LocalReference


class Target(Model):
    """What is written."""

    name: ObjectName | None = None
    kinds: Annotated[
        tuple[Literal["FeatureFlagConfiguration", "FeatureFlag"], ...], Field(min_length=1, max_length=2)
    ] = ("FeatureFlagConfiguration",)


class FlagSetSpec(Model):
    """What the user asks for."""

    source_ref: SourceReference
    paths: Annotated[tuple[Path, ...], Field(min_length=1, max_length=32)] = (".",)
    flag_set_id: Name | None = None
    validation: Validation = Validation.STRICT
    failure_policy: Literal["PerFlag", "Atomic"] = "PerFlag"
    bucketing: Literal["v2", "v3"] = "v2"
    target: Target = Target()
    prune: bool = True
    prune_guard: bool = True
    patches: Annotated[tuple[PatchSpec, ...], Field(max_length=32)] = ()
    substitute: Annotated[dict[Variable, VariableText], Field(max_length=256)] | None = None
    substitute_from: Annotated[tuple[SubstituteReference, ...], Field(max_length=32)] = ()
    decryption: DecryptionSpec | None = None
    drift_policy: DriftPolicy = DriftPolicy.CORRECT
    service_account_name: ObjectName | None = None
    depends_on: Annotated[
        tuple[Dependency, ...], Field(max_length=32), BeforeValidator(_bounded_expressions)
    ] = ()
    interval: Interval = 600.0
    suspend: bool = False

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """Paths that lead out of the source, which a build reports among its problems."""
        for index, path in enumerate(self.paths):
            try:
                normalise(path)
            except InvalidTextError as error:
                yield SpecProblem(f"spec.paths.{index}", str(error))


class ProblemStatus(Model):
    """One problem with its place."""

    severity: Literal["error", "warning"]
    file: str | None = None
    line: int | None = None
    column: int | None = None
    path: str | None = None
    message: str


class HeldFlag(Model):
    """A flag that is served as an older revision had it."""

    name: str
    revision: str | None = None


class TargetStatus(Model):
    """One object that was written."""

    kind: str | None = None
    name: str | None = None
    shards: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One revision that was applied. A `Model` takes ten times the memory, and each FlagSet has up to ten."""

    __pydantic_config__ = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    revision: str
    digest: str | None = None
    held: int | None = None
    """Flags that are not served as this revision has them, but held at an older definition or left out."""
    author: str | None = None
    subject: str | None = None
    committed_at: str | None = None
    verified_by: str | None = None
    origin: str | None = None
    """The commit and repository that an image says it was made of."""
    applied_at: str | None = None
    changes: str | None = None
    """A summary such as `1 added, 2 changed: banner, checkout-v2`."""


class FlagSetStatus(Status):
    """What became of it."""

    last_applied_revision: str | None = None
    last_attempted_revision: str | None = None
    last_good_revision: str | None = None
    digest: str | None = None
    flag_set_id: str | None = None
    bucketing: str | None = None
    flags: int | None = None
    served: str | None = None
    held_flags: int | None = None
    held: Annotated[tuple[HeldFlag, ...], Field(max_length=100)] = ()
    problem_count: int | None = None
    problems: Annotated[tuple[ProblemStatus, ...], Field(max_length=50)] = ()
    pending_removals: Annotated[tuple[str, ...] | None, Field(max_length=100)] = None
    target: tuple[OnErrorOmit[TargetStatus], ...] = ()
    history: Annotated[tuple[OnErrorOmit[HistoryEntry], ...], Field(max_length=10)] = ()

    @property
    def content(self) -> tuple[str, str]:
        """Return the revision of the last attempt, and the digest if it was applied."""
        revision = self.last_attempted_revision or ""
        # What was attempted and not applied has no digest yet: the status keeps that of what is served.
        applied = self.last_applied_revision in (None, revision)
        return revision, (self.digest or "") if applied else ""


def source_key(flag_set: Resource) -> ObjectKey | None:
    """The source: in its own namespace unless it names another; None where there is no `sourceRef`."""
    reference = flag_set.spec.get("sourceRef")
    if not isinstance(reference, dict):
        return None
    namespace = str(reference.get("namespace") or flag_set.namespace)
    return ObjectKey(str(reference.get("kind")), namespace, str(reference.get("name")))


def target_name(flag_set: Resource) -> str:
    """The name of what the FlagSet writes."""
    target = flag_set.spec.get("target")
    name = target.get("name") if isinstance(target, dict) else None
    return str(name or flag_set.name)


def listed(flag_set: Resource, field: str) -> list[dict[str, Any]]:
    """The objects in a list of the spec, as far as it can be read."""
    found = flag_set.spec.get(field)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
