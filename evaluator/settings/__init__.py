"""Reads settings: flagd's options, variables and file, and ours. The only reader of the environment."""

from evaluator.settings.load import Loaded, from_env, load
from evaluator.settings.model import InvalidSettingError, OtelSettings, Settings, TlsPaths
from evaluator.settings.options import OPTIONS, Kind, Option

__all__ = [
    "OPTIONS",
    "InvalidSettingError",
    "Kind",
    "Loaded",
    "Option",
    "OtelSettings",
    "Settings",
    "TlsPaths",
    "from_env",
    "load",
]
