"""What a FlagSet depends on, and the expressions that say whether it is ready."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from controller.api.objects.fields import Model, Name, that
from controller.api.parsing import InvalidTextError

DEPENDENCY_VARIABLES: Final = frozenset({"self", "dep"})
"""What a `readyExpr` may use."""


def _require_expression(text: str) -> None:
    # Reading one takes long to load, for the few flag sets that have any.
    from controller.api.parsing.expression_syntax import require  # noqa: PLC0415

    require(text, DEPENDENCY_VARIABLES)


class Dependency(Model):
    """An object of the namespace that must be ready first."""

    kind: Literal["FlagSet", "FlagSource", "GitRepository", "OCIRepository", "Bucket", "ExternalArtifact"] = (
        "FlagSet"
    )
    """The object's kind."""
    name: Name
    """The object's name."""
    ready_expr: Annotated[str, Field(min_length=1, max_length=1024), that(_require_expression)] | None = None
    """An expression in CEL over `self`, this FlagSet, and `dep`, the other object, that says whether that
    is ready, such as `has(dep.status.flags) && dep.status.flags > 0`; the condition Ready if it is not set.
    All expressions together have at most 2,048 characters.
    """


_MOST_EXPRESSIONS: Final = 2_048
"""Characters of all expressions of a FlagSet: reading them takes up to two tenths of a second."""


def require_short_expressions(dependencies: Any) -> Any:
    """Return `dependencies`. Raises InvalidTextError for too long expressions before the first is read."""
    entries = dependencies if isinstance(dependencies, list | tuple) else ()
    texts = [entry.get("readyExpr") for entry in entries if isinstance(entry, dict)]
    if sum(len(text) for text in texts if isinstance(text, str)) > _MOST_EXPRESSIONS:
        raise InvalidTextError(f"all readyExpr together have more than {_MOST_EXPRESSIONS} characters")
    return dependencies
