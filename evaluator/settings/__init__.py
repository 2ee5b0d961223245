"""Reads settings: flagd's options, variables and file, and ours. The only reader of the environment."""

from evaluator.settings.load import Loaded, from_env, load, parse_servers
from evaluator.settings.options import OPTIONS, Option, ValueKind
from evaluator.settings.settings import InvalidSettingError, OtelSettings, Settings, TlsPaths

__all__ = [
    "OPTIONS",
    "InvalidSettingError",
    "Loaded",
    "Option",
    "OtelSettings",
    "Settings",
    "TlsPaths",
    "ValueKind",
    "from_env",
    "load",
    "parse_servers",
]
