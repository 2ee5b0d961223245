"""The installation's options for injection, and the error for a refused pod."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.api.openfeature import featureflagconfiguration
from controller.delivery import standing_orders
from controller.pods.settings import well_known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IMAGE: Final = "registry.example/flagstaff-evaluator:0.1.0"
ADDRESS: Final = "flagstaff-proxy.flagstaff-system.svc:8015"
AUDIENCE: Final = "flagstaff-proxy"
SERVED: Final = (featureflagconfiguration.KIND, featureflagconfiguration.FLAG_KIND)
"""Kinds of what the proxy serves."""
FLAG_SETS: Final = standing_orders.FLAG_SETS


NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What the API server takes for the name of an object."""


class Refused(ValueError):
    """A pod cannot be injected as it asks; the text says what is wrong, where, and what to do."""


class NotThere(Refused):
    """An object that an annotation names does not exist; the text leaves out which annotation."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the installation, the same for all pods."""

    image: str = IMAGE
    """The evaluator's, unless a pod names another."""
    proxy_address: str = ADDRESS
    """host:port of the proxy's port 8015."""
    proxy_audience: str = AUDIENCE
    """Audience of the pods' tokens, which the proxy accepts."""
    proxy_ca: str = ""
    """A ConfigMap beside the pod, whose `ca.crt` signed the proxy's certificate; empty: plain text."""
    compat: bool = False
    """Whether the container is OpenFeature Operator's, which stock flagd understands."""
    flag_files: bool = False
    """Whether flags are written into ConfigMaps, for sources of the provider `file`."""
    proxy_on_demand: bool = False
    """Whether the proxy runs while pods ask it alone."""
    flag_readers: bool = False
    """Whether, with `compat`, stock flagd reads FeatureFlags of the provider `kubernetes` by itself."""

    @property
    def container(self) -> str:
        """The evaluator's name."""
        return well_known.OPERATORS_CONTAINER if self.compat else well_known.CONTAINER


@dataclass(frozen=True, slots=True)
class FlagSetFound:
    """An object that a pod's annotation names."""

    name: str
    """The name of the FeatureFlagConfiguration or FeatureFlag that the proxy serves."""
    source: str = ""
    """`Kind/name` of the object that the annotation names; empty where it was not looked up."""
    revision: str = ""
    """The one that was applied last; empty where it is not known."""
    flag_set_id: str = ""
    """Empty where it has none, or it is not known."""


class Known(Protocol):
    """The objects that annotations name."""

    def refer(
        self, reader: str, kinds: Sequence[str], namespace: str, name: str
    ) -> tuple[tuple[str, ...], str]:
        """(those of `kinds` of which pods of the namespace `reader` may refer to the object `name` of another
        namespace, a warning or nothing). Raises Refused, where to none.
        """

    def flag_set(self, namespace: str, name: str, kinds: Sequence[str] = FLAG_SETS) -> FlagSetFound:
        """What is served under this name. Raises Refused where there is nothing."""

    def spec(self, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the spec of a FeatureFlagSource or InProcessConfiguration. Raises Refused."""
