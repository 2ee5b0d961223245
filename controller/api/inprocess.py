"""InProcessConfiguration: OpenFeature Operator's settings of providers that evaluate by themselves."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from controller.api.featureflagsource import Port
from controller.api.objects.fields import Model, that
from controller.api.parsing import InvalidTextError

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
    host: str | None = None
    tls: bool | None = None
    socket_path: str | None = None
    offline_flag_source_path: str | None = None
    selector: Annotated[str, that(_require_selector)] | None = None
    cache: Literal["lru", "disabled"] | None = None
    cache_max_size: int | None = None
    env_vars: tuple[dict[str, Any], ...] = ()
    env_var_prefix: str | None = None
