"""Settings of the controller and the proxy. The only reader of their environment."""

from controller.settings.controller import ControllerSettings
from controller.settings.load import (
    OPERATORS,
    OPERATORS_DEBUG,
    InvalidSettingError,
    proxy_logs_debug,
    settings_of,
)
from controller.settings.proxy import AuthMode, ProxySettings
from controller.settings.values import LogFormat

__all__ = [
    "OPERATORS",
    "OPERATORS_DEBUG",
    "AuthMode",
    "ControllerSettings",
    "InvalidSettingError",
    "LogFormat",
    "ProxySettings",
    "proxy_logs_debug",
    "settings_of",
]
