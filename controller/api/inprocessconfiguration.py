"""InProcessConfiguration: OpenFeature Operator's settings of providers that evaluate by themselves."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from controller.api import kind as record
from controller.api.featureflagsource import Port
from controller.api.fields import Model, that
from controller.api.kind import AGE_COLUMN, READY_COLUMN, Kind, PrinterColumn
from controller.api.meta import OPENFEATURE_VERSION
from controller.api.parsing import InvalidTextError
from controller.api.status import Status

KIND: Final = "InProcessConfiguration"
DEFAULTS: Final = {
    "port": 8015,
    "host": "localhost",
    "tls": False,
    "cache": "lru",
    "cache_max_size": 1000,
    "env_var_prefix": "FLAGD",
}
"""The operator's, which its own definition of the kind fills in."""


def _require_selector(selector: str) -> None:
    if len(selector) > 512:
        raise InvalidTextError("must have at most 512 characters")


class InProcessConfigurationSpec(Model):
    """What the user asks for. No default stands here: a field that is not given leaves what another
    InProcessConfiguration of the pod says.
    """

    port: Port | None = None
    """Of the server; default: the proxy's."""
    host: str | None = None
    """Of the server; default: the proxy."""
    tls: bool | None = None
    """Whether the server is asked over TLS."""
    socket_path: str | None = None
    """Unix socket of a server, in place of host and port."""
    offline_flag_source_path: str | None = None
    """File of flags, in place of a server."""
    selector: Annotated[str, that(_require_selector)] | None = None
    """Of the proxy: the name of a flag set. Of another server: passed on."""
    cache: Literal["lru", "disabled"] | None = None
    """Lru (the default) or disabled."""
    cache_max_size: int | None = None
    """Of the cache; default 1000."""
    env_vars: tuple[dict[str, Any], ...] = ()
    """Variables of the application's containers, as a container has them. Their names get the prefix."""
    env_var_prefix: str | None = None
    """Before the names of variables; default FLAGD."""


RECORD: Final = Kind(
    OPENFEATURE_VERSION,
    KIND,
    "inprocessconfigurations",
    short_name="ipc",
    description=(
        "InProcessConfiguration configures providers that evaluate by themselves, in pods that name it."
    ),
    spec=InProcessConfigurationSpec,
    spec_description=(
        "What is asked for. Several InProcessConfigurations of one pod are merged; a field that is "
        "not given changes nothing."
    ),
    status=Status,
    columns=(
        READY_COLUMN,
        PrinterColumn("Selector", ".spec.selector"),
        PrinterColumn("Host", ".spec.host"),
        AGE_COLUMN,
        record.STATUS_COLUMN,
    ),
    note=(
        "Where OpenFeature Operator's own definition is installed already, leave this one out: objects are "
        "read either way."
    ),
    needs_spec=False,
    rights=(*record.RECONCILED, record.FOLLOWED_BY_ADMISSION),
    quota=50,
    is_granted=True,
)
