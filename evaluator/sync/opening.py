"""From what sources are told to sources that can be followed."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaluator.sync.config import FILES, Provider
from evaluator.sync.file import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evaluator.sync.config import SourceConfig
    from evaluator.sync.receipts import Receipts
    from evaluator.sync.source import SyncSource

_random: Final = secrets.SystemRandom().random


def open_sources(
    configs: Sequence[SourceConfig],
    *,
    clock: Callable[[], float],
    random: Callable[[], float] = _random,
    receipts: Receipts | None = None,
) -> tuple[SyncSource, ...]:
    """A source for each, in order, each under a name of its own; nothing is asked of any yet.

    `clock` is Unix seconds, `random` numbers from 0 to 1; `receipts` are sent to whoever takes them. What a kind of source needs is only loaded where there is one.
    Raises InvalidSourceError.
    """
    return tuple(
        _open(name, config, clock, random, receipts)
        for name, config in zip(names(configs), configs, strict=True)
    )


def names(configs: Sequence[SourceConfig]) -> tuple[str, ...]:
    """Each source's name: its URI without secrets, with its selector or number where that alone is another's, too."""
    found: dict[str, None] = {}
    for config in configs:
        name = config.name
        if name in found and config.selector:
            name = f"{name}#{config.selector}"
        plain, number = name, 2
        while name in found:
            name, number = f"{plain}#{number}", number + 1
        found[name] = None
    return tuple(found)


def _open(
    name: str,
    config: SourceConfig,
    clock: Callable[[], float],
    random: Callable[[], float],
    receipts: Receipts | None,
) -> SyncSource:
    identity = f"{config.provider} {name} {config.selector}"
    if config.provider in FILES:
        watch = config.provider is not Provider.FILEINFO
        return FileSource(name, identity, Path(config.uri).expanduser(), watch=watch)
    if config.provider is Provider.GRPC:
        from evaluator.sync.grpc import GrpcSource  # noqa: PLC0415

        reporter = None if receipts is None else receipts.of(name, config.selector)
        return GrpcSource(name, identity, config, reporter=reporter)
    from evaluator.sync.polls import Polls  # noqa: PLC0415
    from evaluator.sync.schedule import Schedule  # noqa: PLC0415

    polls = Polls(Schedule(config, random), clock)
    if config.provider is Provider.HTTP:
        from evaluator.sync.http import HttpSource  # noqa: PLC0415

        return HttpSource(name, identity, config, polls)
    from evaluator.sync.blob import BlobSource  # noqa: PLC0415

    return BlobSource(name, identity, config, polls)
