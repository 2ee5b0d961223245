"""Says what is wrong with a text that libyaml refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evaluator.flags.syntax.problems import UnreadableError

if TYPE_CHECKING:
    import yaml

TEMPLATE: Final = "{{"
"""How what a template fills in begins; YAML has no use for it."""
IN_TEMPLATE: Final = f"the {TEMPLATE} … }}}} of a template is no YAML; check what the template makes"
YAML_PROBLEMS: Final = {
    "found character that cannot start any token": "no value begins with this character; put it in quotes",
    "mapping values are not allowed in this context": "`:` does not fit here; check the indentation, "
    "or put the text in quotes",
    "did not find expected key": "a key was expected; check the indentation of this line and those above",
    "did not find expected '-' indicator": "`- ` was expected; check the indentation of this line",
    "could not find expected ':'": "the `:` after a key is missing, in this line or the one above",
    "block sequence entries are not allowed in this context": "a list cannot begin here; begin a new line",
    "did not find expected ',' or ']'": "`,` or `]` was expected",
    "did not find expected ',' or '}'": "`,` or `}` was expected",
    "did not find expected <document start>": "`---` was expected; check the indentation of this line",
    "did not find expected alphabetic or numeric character": "a name was expected after `*` or `&`; put the "
    "text in quotes",
    "did not find expected node content": "a value was expected",
    "found unexpected end of stream": "the file ends within a quoted text",
    "found unknown escape character": "no such escape; write `\\\\` for a backslash, or use single quotes",
    "control characters are not allowed": "a control character; remove it",
}
"""What libyaml's phrases mean to the author."""


def syntax_error(error: yaml.MarkedYAMLError, text: str) -> UnreadableError:
    """Say what libyaml refused, where, and what to do."""
    opened, mark = error.context_mark, error.problem_mark or error.context_mark
    if mark is not None:
        start = text.rfind("\n", 0, mark.index) + 1
        template = text.find(TEMPLATE, start, (text + "\n").index("\n", start))
        if template >= 0:
            return UnreadableError("broken-yaml", IN_TEMPLATE, template)
    if opened is not None and mark is not None and mark.line > opened.line and text[opened.index] in "[{\"'":
        # libyaml notices a missing end only where something follows that does not fit, often far below.
        message = f"`{text[opened.index]}` is opened here and not closed"
        return UnreadableError("broken-yaml", message, opened.index)
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        message = "YAML is not indented by tabs; use spaces"
        return UnreadableError("broken-yaml", message, mark.index)
    problem = error.problem or error.context or "it cannot be read"
    message = f"the YAML is broken here: {YAML_PROBLEMS.get(problem, problem)}"
    return UnreadableError("broken-yaml", message, mark.index if mark else None)
