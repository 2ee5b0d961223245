"""What all kinds share: group, names, objects as the API server has them, and where a revision came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


AUTHOR: Final = "flagstaff.dev/author"
"""`Name <mail>`."""
COMMITTED_AT: Final = "flagstaff.dev/committed-at"
"""RFC 3339, in UTC."""
SUBJECT: Final = "flagstaff.dev/subject"
"""The first line of the commit's message."""
VERIFIED_BY: Final = "flagstaff.dev/verified-by"
"""Metadata key for whose signature was verified: a name and a key's fingerprint."""
SIGNED_AT: Final = "flagstaff.dev/signed-at"
"""Metadata key for the time of a bucket's signature: RFC 3339, in UTC, always of the same length."""
LINK: Final = "flagstaff.dev/link"
"""Metadata key of an alert for the URL of the commit's page."""
PAGE: Final = "flagstaff.dev/page"
"""Metadata key of an alert for the URL of the page's view of what waits."""
CHANGES: Final = "flagstaff.dev/changes"
"""Metadata key of an alert for what a revision changes, one line for each flag."""
DIFFERENCES: Final = "flagstaff.dev/differences"
"""Annotation of an Event for the same as data: a JSON object of words by flag, as far as they fit."""


GROUP: Final = "flagstaff.dev"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
OPENFEATURE_GROUP: Final = "core.openfeature.dev"
OPENFEATURE_VERSION: Final = f"{OPENFEATURE_GROUP}/v1beta1"
CONFIGURATION_KIND: Final = "FeatureFlagConfiguration"
FLAG_KIND: Final = "FeatureFlag"
SHARD_KIND: Final = "FlagShard"
"""The kinds that hold flags. Files are read by these names without the models of the kinds."""

REQUESTED_AT: Final = "reconcile.fluxcd.io/requestedAt"
"""Flux's annotation: a new value asks for a reconcile now, and status.lastHandledReconcileAt repeats it."""

ACCEPT_REVISION: Final = "flagstaff.dev/accept-revision"
"""The annotation by which a person lets a revision through that the prune guard holds: its value is that
revision, or the commit or digest in it.
"""
SHARD_KEY: Final = "sharding.fluxcd.io/key"
"""Flux's label: its value names the controller that reconciles the object."""
TEST_ALERT: Final = "flagstaff.dev/test-alert"
"""The annotation by which a person asks a FlagProvider for a test message: a new value asks for another."""
RESUME: Final = "flagstaff.dev/resume"
"""The annotation by which a person lets a halted EvaluatorUpgrade go on: a new value asks for it."""
COMPARED_WITH: Final = "flagstaff.dev/compared-with"
"""The annotation of a FlagSet that names the one beside it with which a comment compares it."""
REQUESTS: Final = (REQUESTED_AT, ACCEPT_REVISION, TEST_ALERT, RESUME)
"""Annotations whose change asks for a reconcile."""

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Which object: enough to find it again, whatever became of it."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self:
        """Which object a manifest is of, which names its namespace."""
        meta = manifest["metadata"]
        return cls(manifest["kind"], meta["namespace"], meta["name"])

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


def timestamp(time: datetime) -> str:
    """A time, which must be aware, as the API server writes it: `2026-01-31T12:00:00Z`."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise_timestamp(time: datetime) -> str:
    """Return a time as `timestamp` does, but with milliseconds: `2026-01-31T12:00:00.250Z`."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lets_through(named: str, revision: str) -> bool:
    """Whether ACCEPT_REVISION names this very revision, `NAME@ALGORITHM:DIGEST`, whole or by its digest."""
    digest = revision.rpartition("@")[2]
    return bool(named) and named in {revision, digest, digest.rpartition(":")[2]}


def about(key: ObjectKey, revision: str = "") -> dict[str, str]:
    """Return the fields of a log line about an object (and its revision, if known)."""
    return {"object": str(key)} | ({"revision": revision} if revision else {})


@dataclass(frozen=True, slots=True)
class Resource:
    """One object as it was last seen; nobody changes its `spec` and `status`, which the API server sent."""

    key: ObjectKey
    uid: str
    generation: int
    resource_version: str
    spec: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    status: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    owners: tuple[Mapping[str, Any], ...] = ()
    """metadata.ownerReferences."""
    managers: frozenset[str] = frozenset()
    """The field managers of metadata.managedFields."""
    deleting: bool = False
    deleted_at: str = ""
    """metadata.deletionTimestamp."""
    finalizers: tuple[str, ...] = ()
    """metadata.finalizers."""
    api_version: str = API_VERSION
    created: str = ""
    """metadata.creationTimestamp."""
    parsed: object = field(default=None, init=False, repr=False, compare=False)
    """The status as its model, once `Status.of` has read it."""
    parsed_spec: object = field(default=None, init=False, repr=False, compare=False)
    """The spec as its model, or the error of that, once `parse_spec` has read it."""

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Read an object's body. What is malformed below `spec` is left to the kind's own reader."""
        meta = body["metadata"]
        spec, status = body.get("spec"), body.get("status")
        return cls(
            key=ObjectKey(body["kind"], meta.get("namespace") or "", meta["name"]),
            uid=meta.get("uid", ""),
            generation=meta.get("generation", 0),
            resource_version=meta.get("resourceVersion", ""),
            spec=spec if isinstance(spec, dict) else NOTHING,
            status=status if isinstance(status, dict) else NOTHING,
            annotations=meta.get("annotations") or NOTHING,
            labels=meta.get("labels") or NOTHING,
            owners=tuple(meta.get("ownerReferences") or ()),
            managers=frozenset(
                str(entry.get("manager"))
                for entry in meta.get("managedFields") or ()
                if isinstance(entry, dict)
            ),
            deleting=bool(meta.get("deletionTimestamp")),
            deleted_at=meta.get("deletionTimestamp") or "",
            finalizers=tuple(meta.get("finalizers") or ()),
            api_version=body.get("apiVersion", API_VERSION),
            created=meta.get("creationTimestamp", ""),
        )

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return self.key.namespace

    @property
    def name(self) -> str:
        """The object's name."""
        return self.key.name

    @property
    def owner_reference(self) -> dict[str, Any]:
        """Return the reference for objects that Kubernetes shall delete with this one. A deletion in the
        foreground does not wait for them, and the author of the object needs no right to finalizers.
        """
        named = {"kind": self.key.kind, "name": self.name, "uid": self.uid}
        return {"apiVersion": self.api_version, **named, "blockOwnerDeletion": False}

    def is_owned_by(self, owner: Resource) -> bool:
        """Whether an owner reference names this very object."""
        return any(reference.get("uid") == owner.uid for reference in self.owners)

    @property
    def suspended(self) -> bool:
        """Return whether its user has suspended it."""
        return self.spec.get("suspend") is True


def version_of(resource: Resource | None) -> object:
    """What changes whenever anything of the object does; None where there is no object."""
    return None if resource is None else (resource.uid, resource.resource_version)


def generation_of(resource: Resource | None) -> object:
    """What changes whenever the spec does; None where there is no object."""
    return None if resource is None else (resource.uid, resource.generation)


def owner_of(meta: Mapping[str, Any]) -> dict[str, str] | None:
    """Return a reference to the owner that manages an object, or else to the first; None if incomplete."""
    owners = meta.get("ownerReferences")
    listed = (
        [reference for reference in owners if isinstance(reference, dict)] if isinstance(owners, list) else []
    )
    first = next(
        (reference for reference in listed if reference.get("controller") is True),
        listed[0] if listed else {},
    )
    owner = {name: first.get(name) for name in ("apiVersion", "kind", "name", "uid")}
    whole = all(isinstance(text, str) and text for text in owner.values())
    return {name: str(text) for name, text in owner.items()} if whole else None


def uid_and_spec(resource: Resource | None) -> object:
    """Return a value that changes when an object is replaced or its spec changes; None for no object."""
    return None if resource is None else (resource.uid, resource.spec)


def secret_names(holder: object) -> set[str]:
    """The names of the Secrets that a part of a spec refers to, as far as it can be read."""
    names = set()
    for field_name in ("secretRef", "certSecretRef", "proxySecretRef", "trustedRootSecretRef"):
        reference = holder.get(field_name) if isinstance(holder, dict) else None
        if isinstance(reference, dict):
            names.add(str(reference.get("name")))
    return names
