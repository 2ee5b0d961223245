"""Settings of admission, the controller, the page and the proxy. Nothing else reads their environment."""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from controller.app.settings.controller_settings import ControllerSettings
from controller.app.settings.injection_settings import AdmissionSettings
from controller.app.settings.page_settings import PageSettings
from controller.app.settings.proxy_settings import AuthMode, ProxySettings
from controller.app.settings.settings_values import PREFIX, LogFormat

__all__ = [
    "OPERATORS", "OPERATORS_DEBUG", "AdmissionSettings", "AuthMode", "ControllerSettings",
    "InvalidSettingError", "LogFormat", "PageSettings", "ProxySettings", "proxy_logs_debug", "settings_of",
]  # fmt: skip

S = TypeVar("S", bound=AdmissionSettings | ControllerSettings | PageSettings | ProxySettings)

OPERATORS: Final = {"sync_port": "FLAGD_PROXY_PORT", "management_port": "FLAGD_PROXY_MANAGEMENT_PORT"}
"""OpenFeature Operator's variables of its proxy, which ours reads where its own are not set."""
OPERATORS_DEBUG: Final = "FLAGD_PROXY_DEBUG_LOGGING"
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
"""The texts for true that Go's parser of booleans reads."""


class InvalidSettingError(ValueError):
    """A setting cannot be used; the text names it and says what it must be."""


def settings_of(kind: type[S], **given: Any) -> S:
    """`given`, of the command line, over the environment. Raises InvalidSettingError, naming the option."""
    theirs: dict[str, Any] = {} if kind is not ProxySettings else {
        field: os.environ[name]
        for field, name in OPERATORS.items()
        if name in os.environ and field not in given and PREFIX + field.upper() not in os.environ
    }  # fmt: skip
    try:
        return kind(**given, **theirs)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        name = f"--{field.replace('_', '-')}" if field in given else PREFIX + field.upper()
        name = OPERATORS[field] if field in theirs else name
        must = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        raise InvalidSettingError(f"{name} is {str(first['input'])[:100]!r}: {must}") from None


def proxy_logs_debug() -> bool:
    """Return whether OpenFeature Operator's variable asks for debug logs."""
    return os.environ.get(OPERATORS_DEBUG) in _TRUE
