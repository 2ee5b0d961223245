"""Values of settings, as texts give them, and the fields that the controller and the proxy share."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from controller.api.parsing.addresses import AddressRefused, require_usable
from controller.runtime.tenancy.hosts import require_entries

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAMESPACE: Final = "flagstaff-system"
PREFIX: Final = "FLAGSTAFF_"


class LogFormat(StrEnum):
    """The format of the log."""

    CONSOLE = "console"
    JSON = "json"


def _names(value: Any) -> Any:
    return [item.strip() for item in value.split(",") if item.strip()] if isinstance(value, str) else value


def own_namespace(value: Any = None) -> Any:
    """Return `value`, or if it is empty the namespace of this process' pod."""
    try:
        return value or NAMESPACE_FILE.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except OSError:
        return DEFAULT_NAMESPACE


def _events_address(value: str) -> str:
    try:
        if value:
            require_usable(value, allow_local=True)
    except AddressRefused as error:
        raise ValueError(str(error).replace("it must", "must", 1)) from error
    return value


def own_pod() -> str:
    """The name of the Pod that we run in; empty outside of one."""
    return os.environ.get("POD_NAME", "")


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]
Hosts = Annotated[Names, AfterValidator(require_entries)]
EventsAddress = Annotated[str, AfterValidator(_events_address)]
Port = Annotated[int, Field(ge=0, le=65_535)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Quota = Annotated[int, Field(ge=0)]
Namespace = Annotated[str, BeforeValidator(own_namespace)]


class SharedSettings(BaseSettings):
    """What our processes in a cluster have in common."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    kubeconfig: str = Field(
        default="", description="path of a kubeconfig (default $KUBECONFIG, or the pod's account)"
    )
    host: str = Field(
        default="0.0.0.0",  # noqa: S104 - other pods call it
        description="address that all ports listen on",
    )
    management_host: str = Field(default="", description="address of the management port (default: --host)")
    management_port: Port = Field(
        default=8014, description="port for health, readiness and metrics; 0 takes a free port"
    )
    log_format: LogFormat = Field(
        default=LogFormat.CONSOLE, description="form of the log on standard error: console or json"
    )
