"""Sockets are tested on both loops that we may run on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

_OVER_SOCKETS = {"test_listener.py", "test_streamed.py", "test_tls.py", "test_unix_sockets.py"}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]]
    factories = {"asyncio": asyncio.new_event_loop}
    if item.path.name in _OVER_SOCKETS:
        factories["uvloop"] = uvloop.new_event_loop
    return factories
