"""What our parser reports although flagd's published schemas accept it, with the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNSEEN: Final = "the schema does not look into array literals and the arguments of `var`; "

OF_RULES: Final[Mapping[str, str]] = {
    "unknown-operator": _UNSEEN + "evaluation there ends in PARSE_ERROR as anywhere else",
    "list-needle": "a schema cannot tell that a list is never found",
    "numeric-seed": "a schema cannot tell that a rule never gives text",
    "lax-version": _UNSEEN + "flagd reads it as a version there as anywhere else",
    "unlisted-operator": _UNSEEN + "providers that evaluate in process do not know it there",
    "bad-argument": _UNSEEN + "the operator yields null there as anywhere else",
    "bad-bucket": _UNSEEN + "and it lets `fractional` have a bucketing value but no bucket",
    "bad-weight": _UNSEEN + "the fraction yields null there as anywhere else",
    "reference-position": _UNSEEN + "a reference there is as unportable as anywhere else",
    "wrong-arity": "an array is itself a value to the schema, so `!` takes any; `var` takes anything",
    "empty-rule": "every key of a rule is optional to the schema, so `{}` passes where a rule must stand",
    "several-operators": "the schema takes operators of one group together; flagd evaluates none of them",
    "bad-flagd-variable": "the schema does not look into `var`'s list form, and not past a line break",
    "unknown-reference": "a schema cannot compare a name with the keys of `$evaluators`",
    "nested-reference": "the schema allows it, flagd's single pass over the text does not expand it surely",
    "reference-cycle": "a schema cannot follow references; no flagd can expand it",
    "weight-too-large": "a schema cannot add; flagd serves no variant when the sum is beyond 2147483647",
    "unusual-name": "the schema's pattern binds the keys of objects, not those in a list of flags",
    "rule-too-deep": "untrusted rules are bounded before they are compiled",
    "rule-too-large": "untrusted rules are bounded before they are compiled",
}
"""What is reported of rules and names although flagd's schemas accept it: code to reason."""


OF_DOCUMENTS: Final[Mapping[str, str]] = {
    "unknown-field": "the schema allows any further field of a flag; flagd ignores it: perhaps a typo",
    "field-case": "the schema allows any further field; flagd reads it as the field that it means",
    "unknown-key": "the schema allows any further key of a document; flagd ignores it: perhaps a typo",
    "unknown-variant": "a schema cannot look `defaultVariant` up in `variants`; flagd refuses the document",
    "empty-evaluator": "the schema takes an empty rule; flagd refuses a document with an empty evaluator",
    "duplicate-key": "a schema sees the last of two equal keys; which of them was meant is not known",
    "duplicate-flag": "the schema does not compare the items of a list, nor documents with each other",
    "conflicting-key": "the schema does not compare documents with each other",
    "unknown-outcome": "a schema cannot compare what a rule returns with the keys of `variants`",
    "archived-key": "the schema knows no archive, and flagd ignores it",
    "missing-base": "the schema knows no layers",
    "removes-nothing": "null in a layer removes; the schema knows no layers",
    "unusable-number": "YAML's infinities, and numbers beyond 64-bit floats, have no JSON that flagd reads",
    "set-metadata-type": "the schema means it, but draft-07 ignores what is beside `$ref`; flagd wants text",
    "too-many-problems": "the number of problems that are listed is limited",
}
"""What is reported of documents although flagd's schemas accept it: code to reason. Rules have a list of
their own.
"""

REMARKS: Final = frozenset({"added-flag", "no-definitions", "unreached-default", "unused-variant"})
"""Notes about flags that no schema is about."""
