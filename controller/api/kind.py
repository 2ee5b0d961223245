"""What is known of a kind: one record, from which whatever names kinds is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.api.fields import Model, SpecProblem, validate
from controller.api.status import Status

if TYPE_CHECKING:
    from controller.api.fields import SpecRule
    from controller.api.status import StatusModel


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`."""

    name: str
    path: str
    """A JSONPath."""
    type: str = "string"
    priority: int = 0
    """1: only with `-o wide`."""

    def texts(self, body: Mapping[str, Any]) -> list[str]:
        """The values of an object, as kubectl prints them; none where it has none. The path may have names,
        `[0]`, `[*]` and `[?(@.type=="Ready")]`.
        """
        values: list[Any] = [body]
        for name, place, field_, value in _STEP.findall(self.path):
            if name:
                key = name.replace("\\", "")
                values = [one[key] for one in values if isinstance(one, Mapping) and key in one]
                continue
            items = [item for one in values if isinstance(one, list) for item in one]
            if field_:
                values = [item for item in items if isinstance(item, dict) and item.get(field_) == value]
            else:
                values = items if place == "*" else items[int(place) : int(place) + 1]
        return [str(value).lower() if isinstance(value, bool) else str(value) for value in values]


_STEP: Final = re.compile(r"""\.((?:[^.\[\\]|\\.)+)|\[(\d+|\*)\]|\[\?\(@\.(\w+)=="([^"]*)"\)\]""")
READY_COLUMN: Final = PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status')
STATUS_COLUMN: Final = PrinterColumn("Status", '.status.conditions[?(@.type=="Ready")].message')
WITHHELD_COLUMNS: Final = (
    PrinterColumn("Rollout", '.status.conditions[?(@.type=="RolloutActive")].reason'),
    PrinterColumn("Override", '.status.conditions[?(@.type=="OverrideActive")].reason'),
)
"""Why not every user gets all flags of a set."""
AGE_COLUMN: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date")
SUSPENDED_COLUMN: Final = PrinterColumn("Suspended", ".spec.suspend", "boolean")


CONTROLLER: Final = "flagstaff-controller"
DELIVERY: Final = "flagstaff-controller-delivery"
"""The role for what FlagSets make, which components/delivery binds."""
PROXY: Final = "flagstaff-proxy"
PAGE: Final = "flagstaff-page"
ADMISSION: Final = "flagstaff-admission"
READ: Final = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Right:
    """What one of our ClusterRoles lets its process do with all objects of a kind."""

    role: str
    verbs: tuple[str, ...]
    part: str = ""
    """`status`, or empty for the object itself."""


READ_BY_CONTROLLER: Final = Right(CONTROLLER, READ)
RECONCILED: Final = (READ_BY_CONTROLLER, Right(CONTROLLER, ("patch",), "status"))
SHOWN_BY_PAGE: Final = Right(PAGE, READ)
FOLLOWED_BY_PROXY: Final = Right(PROXY, ("list", "watch"))
FOLLOWED_BY_ADMISSION: Final = Right(ADMISSION, ("list", "watch"))
DELIVERED_FOR_SETS: Final = Right(DELIVERY, ("create", "patch", "delete"))


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A kind as the API server serves it."""

    api_version: str
    """The `apiVersion` in manifests: `flagstaff.dev/v1beta1`, or `v1` of the core group."""
    kind: str
    plural: str
    content: bool = True
    """False: only metadata is kept, so that what the object holds never reaches us."""
    status: type[StatusModel] | None = Status
    """The model of its status. None: objects have none."""
    rights: tuple[Right, ...] = ()
    """What our processes may do with its objects everywhere. They watch what they may watch."""

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """Return the version without the group."""
        return self.api_version.rpartition("/")[2]

    def verbs_of(self, role: str, part: str = "") -> tuple[str, ...]:
        """Return what a role may do with its objects, or with this part of them."""
        return next((each.verbs for each in self.rights if (each.role, each.part) == (role, part)), ())


# Of two records of one kind no field differs, and some have no hash.
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind(ResourceType):
    """A kind of ours, which users install. What CustomResourceDefinitions, roles, webhooks, quotas, pages
    and watches say of it is made from this record.
    """

    short_name: str
    description: str
    """What an object of the kind is, for `kubectl explain`."""
    spec: type[Model]
    spec_description: str = "What is asked for."
    judged: bool = True
    """Whether `validate` judges the spec. That of others is written by us, or judged as flags."""
    columns: tuple[PrinterColumn, ...] = (AGE_COLUMN,)
    older: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Versions that are served beside the newest, with what their schema of the spec says otherwise; None
    removes.
    """
    note: str = ""
    """A comment in the file of its definition, for those who install it."""
    is_for_users: bool = True
    """Whether `kubectl get flagstaff` lists its objects."""
    needs_spec: bool = True
    rights: tuple[Right, ...] = RECONCILED
    rules: tuple[SpecRule, ...] = ()
    """CEL rules over the whole object."""
    modules: str = ""
    """The packages below controller/ that work for it, and the modules that differ from their package,
    separated by spaces: there stand its reasons.
    """
    quota: int | None = None
    """How many objects deploy/namespaces lets a tenant's namespace have. None: tenants write none."""
    is_granted: bool = False
    """Whether a FlagGrant may let objects of other namespaces refer to its objects."""
    has_alerts: bool = False
    """Whether a FlagAlert may choose the Events of its objects."""

    def validate(self, spec: object) -> tuple[SpecProblem, ...]:
        """Return all problems that an object's spec has by itself. Problems that depend on other objects in
        the cluster, or on options of the installation, are found by the reconciler. Never raises.
        """
        return validate(self.spec, spec) if self.judged else ()
