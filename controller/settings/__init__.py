"""Settings of the controller and the proxy. The only reader of their environment."""

from controller.settings.controller import ControllerSettings
from controller.settings.load import OPERATORS, InvalidSettingError, settings_of
from controller.settings.proxy import AuthMode, ProxySettings
from controller.settings.values import LogFormat

__all__ = [
    "OPERATORS",
    "AuthMode",
    "ControllerSettings",
    "InvalidSettingError",
    "LogFormat",
    "ProxySettings",
    "settings_of",
]
