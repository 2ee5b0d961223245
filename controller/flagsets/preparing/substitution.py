"""Variables in values of definitions, in Flux's grammar: `${NAME}`, `${NAME:=default}`, `$$`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from controller.flagsets.preparing.preparation import Prepared
from controller.flagsets.preparing.variable_text import (
    PLAIN,
    BrokenError,
    TooLongError,
    VariableExpression,
    has_marks,
    read_template,
    transform,
    work_of,
)
from evaluator.flags.model import EMPTY
from evaluator.flags.syntax.problems import Finding, Severity
from evaluator.flags.syntax.text import DEFAULT, quote, read_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.flagsets.preparing.preparation import Allowance
    from controller.flagsets.preparing.variable_text import Template
    from evaluator.flags.model import Json, Path
    from evaluator.flags.syntax.problems import Document

UNKNOWN: Final = "unknown-variable"
BROKEN: Final = "broken-variable"
TOO_LARGE: Final = "variables-too-large"
PLACE: Final = "variable-place"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_WORDS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Variables:
    """What may be replaced, and by what."""

    values: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    secret: frozenset[str] = frozenset()
    """Names whose values come from Secrets."""

    def __call__(self, document: Document, allowance: Allowance) -> Prepared:
        """Replace them in the values of a document. Implements `Step`."""
        walk = _Walk(self, allowance)
        try:
            value = walk.value(document.value, ())
        except _ExceededError as error:
            # No flag of it can be used: the rest still has its variables.
            value = {"flags": {}}
            walk.findings.append(Finding((), Severity.ERROR, TOO_LARGE, str(error)))
        findings = (*document.findings, *walk.findings)
        return Prepared(replace(document, value=value, findings=findings), tuple(walk.secrets))


class _ExceededError(Exception):
    """The allowance is used up."""


class _Walk:
    def __init__(self, variables: Variables, allowance: Allowance) -> None:
        self._variables = variables
        self._allowance = allowance
        self.findings: list[Finding] = []
        self.secrets: list[Path] = []

    def value(self, value: Json, path: Path) -> Json:
        """The value with its variables replaced; the very same where it has none."""
        if isinstance(value, str):
            return self._text(value, path) if has_marks(value) else value
        if isinstance(value, dict):
            members = {key: self.value(member, (*path, key)) for key, member in value.items()}
            return members if any(members[key] is not value[key] for key in members) else value
        if isinstance(value, list):
            items = [self.value(item, (*path, index)) for index, item in enumerate(value)]
            return items if any(one is not other for one, other in zip(items, value, strict=True)) else value
        return value

    def _text(self, text: str, path: Path) -> Json:
        before = len(self.findings)
        if len(path) == 3 and path[0] == "flags" and isinstance(path[1], int) and path[2] == "key":
            self._find(PLACE, "a flag's key takes no variable; write the key", path)
            return text
        try:
            template = read_template(text)
        except BrokenError as error:
            message = (
                f"{quote(str(error))} is not ${{NAME}}, ${{NAME:=default}} or another form of Flux's; "
                "correct it, or write $${ for the text ${"
            )
            self._find(BROKEN, message, path)
            return text
        made = self._render(template, path)
        if len(self.findings) > before:
            return text
        return _scalar(made) if len(template) == 1 and isinstance(template[0], VariableExpression) else made

    def _render(self, template: Template, path: Path) -> str:
        return "".join(part if isinstance(part, str) else self._value_of(part, path) for part in template)

    def _value_of(self, expression: VariableExpression, path: Path) -> str:
        name = expression.name
        text = self._variables.values.get(name)
        default = expression.default(text)
        if default is not None:
            return self._render(default, path)
        if text is None:
            message = (
                f"the variable {name} has no value; add it to `substitute`, or write ${{{name}:=default}}, "
                f"or $${{ for the text"
            )
            self._find(UNKNOWN, message, path)
            return ""
        if name in self._variables.secret:
            self.secrets.append(path)
        self._pay(len(text))
        if expression.operator in PLAIN:
            return text
        arguments = [self._render(argument, path) for argument in expression.arguments]
        if expression.operator[0] in "#%":
            self._pay(work_of(arguments[0], text))
        try:
            made = transform(text, expression.operator, arguments, len(text) + self._allowance.characters)
        except TooLongError:
            raise _allowance_error() from None
        except BrokenError as error:
            self._find(BROKEN, f"{quote(expression.text)}: {error}", path)
            return ""
        self._pay(max(0, len(made) - len(text)))
        return made

    def _pay(self, characters: int) -> None:
        self._allowance.characters -= characters
        if self._allowance.characters < 0:
            raise _allowance_error()

    def _find(self, code: str, message: str, path: Path) -> None:
        self._allowance.findings -= 1
        if self._allowance.findings < 0:
            raise _ExceededError(
                f"{DEFAULT.problems} or more variables cannot be replaced; correct the first ones"
            )
        self.findings.append(Finding(path, Severity.ERROR, code, message))


def _allowance_error() -> _ExceededError:
    return _ExceededError(
        f"the variables' values, and the work of their patterns, come to more than "
        f"{DEFAULT.document_bytes} characters in all files"
    )


def _scalar(text: str) -> Json:
    """The scalar that `text` is in JSON; text in double quotes stays text, whatever it looks like."""
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text) and (number := read_number(text)) is not None:
        return number
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
