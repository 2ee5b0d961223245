"""FlagSource: where flag definitions live."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator

from controller.api.artifact import ArtifactStatus
from controller.api.fields import Interval, LocalReference, Model, Timeout

KIND: Final = "FlagSource"
PLURAL: Final = "flagsources"
DEFAULT_BRANCH: Final = "main"
PROVIDERS: Final = ("git",)
"""Fields of the spec of which each configures one provider."""

_Short = Annotated[str, Field(min_length=1, max_length=255)]


_SCP: Final = re.compile(r"([^/:]+@[^/:]+):(?!//)(.+)")
"""`git@host:path`, as Git takes it on its command line."""


def _url(url: str) -> str:
    if found := _SCP.fullmatch(url):
        raise ValueError(f"write ssh://{found[1]}/{found[2].lstrip('/')}")
    if not re.match(r"(https?|ssh|file)://.", url):
        raise ValueError("must begin with https://, http:// or ssh://")
    return url


class GitReference(Model):
    """What to follow; the most exact of several wins, as with Flux: commit, name, tag, semver, branch."""

    branch: _Short | None = None
    tag: _Short | None = None
    semver: _Short | None = None
    name: Annotated[str, Field(max_length=255, pattern=r"^refs/.+[^/]$")] | None = None
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | None = None


class GitSpec(Model):
    """A Git repository."""

    url: Annotated[str, Field(max_length=2048), AfterValidator(_url)]
    ref: GitReference = GitReference()
    secret_ref: LocalReference | None = None
    proxy_secret_ref: LocalReference | None = None


class FlagSourceSpec(Model):
    """What the user asks for."""

    interval: Interval
    timeout: Timeout = 60.0
    suspend: bool = False
    ignore: Annotated[str, Field(max_length=65536)] | None = None
    git: GitSpec | None = None

    @model_validator(mode="after")
    def _has_one_provider(self) -> Self:
        if len([name for name in PROVIDERS if getattr(self, name) is not None]) != 1:
            raise ValueError(f"set exactly one of {', '.join(PROVIDERS)}")
        return self

    @property
    def provider(self) -> str:
        """The field that is set of `PROVIDERS`."""
        return next(name for name in PROVIDERS if getattr(self, name) is not None)


class FlagSourceStatus(Model):
    """What was found."""

    observed_generation: int = -1
    last_handled_reconcile_at: str | None = None
    observed_ignore: str | None = None
    artifact: ArtifactStatus | None = None
    conditions: tuple[dict[str, Any], ...] = ()
