"""The Git repository of a FlagSource."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from controller.api.objects.fields import (
    LocalReference,
    Model,
    ShortText,
    SpecProblem,
    VersionRange,
    refuse,
    that,
)
from controller.api.objects.rules import Rule
from controller.api.objects.schema_words import in_schema
from controller.api.parsing.git_url import Transport, parse_location
from controller.api.parsing.names import is_within_source
from controller.api.parsing.reference_names import TAGS
from controller.api.parsing.references import require_commit, require_name, short_name

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_BRANCH: Final = "main"
_NO_PATTERN: Final = Rule(
    "!self.matches('^/|(^|/)[.][.](/|$)|[*?[]')",
    "must be a folder within the source, not a pattern: no / at its start, and no ..",
    lambda path: is_within_source(path) and not any(mark in path for mark in "*?["),
)
_Directory = Annotated[str, Field(min_length=1, max_length=1024), _NO_PATTERN]


_SCP: Final = re.compile(r"([^/:]+@[^/:]+):(?!//)(.+)")
"""`git@host:path`, as Git takes it on its command line."""


def _repository_url(url: str) -> str:
    if short_form := _SCP.fullmatch(url):
        raise ValueError(f"write ssh://{short_form[1]}/{short_form[2].lstrip('/')}")
    if not re.match(r"(https?|ssh|file)://.", url):
        raise ValueError("must begin with https://, http:// or ssh://")
    parse_location(url)
    return url


_URL_RULES: Final = (
    Rule(
        "self.matches('^(https?|ssh|file)://.+$') || self.matches('^[^/:]+@[^/:]+:')",
        "must begin with https://, http:// or ssh://",
    ),
    Rule(
        "!self.matches('^[^/:]+@[^/:]+:')",
        "write ssh://git@example.com/team/repository.git for git@example.com:team/repository.git",
    ),
    Rule("!self.contains('?')", "a URL must have no query; put a token into the Secret that secretRef names"),
    Rule(
        "!self.matches('^(https?://[^/@]*|[a-z]+://[^/@]*:[^/@]*)@')",
        "a URL must not hold a password or token; put it into the Secret that secretRef names",
    ),
)
"""What the API server refuses; `_repository_url` says more exactly what is wrong."""


class GitReference(Model):
    """What to follow; the most exact of several wins, as with Flux: commit, name, tag, semver, branch."""

    branch: Annotated[ShortText, AfterValidator(partial(short_name, "branch"))] | None = None
    """One branch, `main` if nothing is set; `refs/heads/main` is read as `main`."""
    tag: Annotated[ShortText, AfterValidator(partial(short_name, "tag"))] | None = None
    """One tag; `refs/tags/v1` is read as `v1`."""
    semver: VersionRange | None = None
    """A range over the tags, such as `>=1.0.0 <2.0.0`; the highest version is used."""
    name: (
        Annotated[
            str,
            Field(max_length=255),
            in_schema(pattern="^refs/.+[^/]$"),
            that(partial(require_name, "name")),
        ]
        | None
    ) = None
    """A full reference name, such as `refs/heads/main` or `refs/pull/420/head`."""
    commit: Annotated[str, in_schema(pattern="^[0-9a-f]{40}$"), that(require_commit)] | None = None
    """One commit, by all 40 hexadecimal digits. Once fetched it needs no network; with `branch`, the
    revision names the branch.
    """

    @property
    def is_tag(self) -> bool:
        """Whether tags alone are followed."""
        if self.commit is not None:
            return False
        if self.name is not None:
            return self.name.startswith(TAGS)
        return self.tag is not None or self.semver is not None


class GitSpec(Model):
    """A Git repository."""

    url: Annotated[str, Field(max_length=2048), AfterValidator(_repository_url), *_URL_RULES]
    """An `https://`, `http://` or `ssh://` URL without a password, token or query; those belong in the
    Secret of `secretRef`.
    """
    ref: GitReference = GitReference()
    """What to follow. If several are set, the first of `commit`, `name`, `tag`, `semver` and `branch` is
    used, as with Flux.
    """
    secret_ref: LocalReference | None = None
    """A Secret in the same namespace, with [keys](#secrets) as for Flux."""
    proxy_secret_ref: LocalReference | None = None
    """A Secret in the same namespace with the `address` of a proxy for http and https, and `username` and
    `password` if it needs them.
    """
    history: Annotated[Literal["Any", "FastForwardOnly"], in_schema(x_default=None)] = "Any"
    """`FastForwardOnly`: a new revision must descend from the accepted one, as with `verify` in any case.
    `Any` if it is not set.
    """
    recurse_submodules: bool = False
    """Whether the files of [submodules](../artifacts.md#submodules) are in the artifact; they must be on
    the repository's own host.
    """
    sparse_checkout: Annotated[tuple[_Directory, ...], Field(max_length=100)] = ()
    """[Folders](../artifacts.md#folders-of-a-repository) whose files are in the artifact; all folders if
    there are none.
    """

    @model_validator(mode="after")
    def _has_a_remote_for_submodules(self) -> Self:
        if self.recurse_submodules and self.url.startswith("file:"):
            refuse([SpecProblem("recurseSubmodules", "needs a remote repository, not a file:// URL")])
        return self

    def cluster_problems(self) -> Iterator[SpecProblem]:
        """Return the problems in a cluster, which has no keys of a user."""
        if self.secret_ref is None and parse_location(self.url).transport is Transport.SSH:
            message = "ssh needs a Secret with 'identity' and 'known_hosts'; name it here"
            yield SpecProblem("spec.git.secretRef", message, "AuthenticationFailed")
