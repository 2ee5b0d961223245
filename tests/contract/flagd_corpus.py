"""Documents of ours for each definition of flagd's schemas: those they accept, and those they reject.

The first word of a name is the definition concerned. `codes` is all that the parser reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    document: Any
    accepted: bool
    """By the schema."""
    codes: frozenset[str]

    @property
    def definition(self) -> str:
        return self.name.split()[0]


ON_OFF = {"on": True, "off": False}


def flags(*, array: bool = False, variants: Any = None, **parts: Any) -> dict[str, Any]:
    """A document with one flag; a part that is None is left out."""
    flag = {"state": "ENABLED", "variants": ON_OFF if variants is None else variants, **parts}
    return {"flags": [{"key": "a", **flag}] if array else {"a": flag}}


def targeting(rule: Any) -> dict[str, Any]:
    return {**flags(targeting=rule), "$evaluators": {"shared": {"var": "x"}}}


def good(name: str, document: Any, *beyond: str) -> Case:
    return Case(name, document, accepted=True, codes=frozenset(beyond))


def bad(name: str, document: Any, *codes: str) -> Case:
    return Case(name, document, accepted=False, codes=frozenset(codes))


def rule(name: str, body: Any, *beyond: str) -> Case:
    return good(name, targeting(body), *beyond)


def bad_rule(name: str, body: Any, *codes: str) -> Case:
    return bad(name, targeting(body), *codes)


VAR = {"var": "x"}
SHARED = {"$ref": "shared"}

CASES = (
    good("flagdConfig as a map", flags()),
    good("flagdConfig without a flag", {"flags": {}}),
    good("flagdConfig with a schema", {"$schema": "x", **flags()}),
    good("flagdConfig with an unknown key", {"flag": {}, **flags()}, "unknown-key"),
    bad("flagdConfig that is a list", [], "not-an-object"),
    bad("flagdConfig without flags", {"metadata": {}}, "missing-flags"),
    bad("flagdConfig with flags as text", {"flags": "a"}, "not-flags"),
    good("providerConfig as flagdConfig has it", {"flags": {}, "$evaluators": {}, "metadata": {}}),
    good("flagsMap", flags()),
    bad("flagsMap with an empty key", {"flags": {"": flags()["flags"]["a"]}}, "unusual-name"),
    bad("flagsMap with a flag as text", {"flags": {"a": "b"}}, "not-a-flag"),
    good("flagsArray", flags(array=True)),
    good("flagsArray of none", {"flags": []}),
    good(
        "flagsArray with a key twice",
        {"flags": flags(array=True)["flags"] * 2},
        "duplicate-flag",
    ),
    bad("flagsArray without a key", {"flags": [flags()["flags"]["a"]]}, "missing-flag-key"),
    bad(
        "flagsArray with an empty key",
        {"flags": [{"key": "", **flags()["flags"]["a"]}]},
        "unusual-name",
    ),
    good(
        "flagsArray with a line break in a key",
        {"flags": [{"key": "a\nb", **flags()["flags"]["a"]}]},
        "unusual-name",
    ),
    bad("flagsArray of text", {"flags": ["a"]}, "not-a-flag"),
    good("baseConfig with all", {**flags(), "$evaluators": {"e": VAR}, "metadata": {"flagSetId": "s"}}),
    bad("baseConfig with evaluators as a list", {**flags(), "$evaluators": []}, "not-an-object"),
    bad("baseConfig with an evaluator as text", {**flags(), "$evaluators": {"e": "x"}}, "not-a-rule"),
    bad("baseConfig with a nameless evaluator", {**flags(), "$evaluators": {"": VAR}}, "unusual-name"),
    good("baseConfig with an empty evaluator", {**flags(), "$evaluators": {"e": {}}}, "empty-evaluator"),
    good(
        "baseConfig with nested references",
        {**flags(), "$evaluators": {"e": {"!": {"$ref": "f"}}, "f": VAR}},
        "nested-reference",
    ),
    good(
        "baseConfig with a cycle",
        {**flags(), "$evaluators": {"e": {"!": {"$ref": "e"}}}},
        "reference-cycle",
    ),
    good("baseConfig with flagSetId 1", {**flags(), "metadata": {"flagSetId": 1}}, "set-metadata-type"),
    bad("baseConfig with null metadata", {**flags(), "metadata": None}, "null-section"),
    good("baseFlag with all", flags(defaultVariant="on", targeting={}, metadata={"a": 1})),
    good("baseFlag with null as default", flags(defaultVariant=None)),
    good("baseFlag with an unknown field", flags(stat="ENABLED"), "unknown-field"),
    good("baseFlag with an unknown default", flags(defaultVariant="no"), "unknown-variant"),
    bad("baseFlag with a number as default", flags(defaultVariant=1), "wrong-default-variant"),
    bad("baseFlag without state", {"flags": {"a": {"variants": ON_OFF}}}, "missing-state"),
    bad("baseFlag in an unknown state", flags(state="enabled"), "unknown-state"),
    bad("baseFlag in a boolean state", flags(state=True), "wrong-state"),
    bad("baseFlag without variants", {"flags": {"a": {"state": "ENABLED"}}}, "missing-variants"),
    bad("baseFlag without a variant", flags(variants={}), "empty-variants"),
    bad("baseFlag with variants as a list", flags(variants=[True]), "wrong-variants"),
    bad("baseFlag with a nameless variant", flags(variants={"": True}), "unusual-name"),
    bad("baseFlag with targeting as text", flags(targeting="on"), "not-a-rule"),
    bad("baseFlag with targeting null", flags(targeting=None), "null-section"),
    good("anyFlag", flags(variants={"a": 1})),
    bad("anyFlag of no type", flags(variants={"a": None}), "variant-type"),
    bad("anyFlag of a list", flags(variants={"a": [1]}), "variant-type"),
    good("booleanFlag", flags()),
    bad("booleanFlag with text", flags(variants={"on": True, "off": "no"}), "mixed-variants"),
    good("stringFlag", flags(variants={"a": "x", "b": ""})),
    bad("stringFlag with a number", flags(variants={"a": "x", "b": 1}), "mixed-variants"),
    good("numberFlag of whole and fraction", flags(variants={"a": 1, "b": 1.5})),
    bad("numberFlag with a boolean", flags(variants={"a": 1, "b": True}), "mixed-variants"),
    good("objectFlag", flags(variants={"a": {}, "b": {"$ref": [1, None]}})),
    bad("objectFlag with a list", flags(variants={"a": {}, "b": []}), "variant-type"),
    good("booleanVariants", flags(variants={"x": False})),
    good("stringVariants", flags(variants={"x": "y"})),
    good("numberVariants", flags(variants={"x": -0.5})),
    good("objectVariants", flags(variants={"x": {"y": []}})),
    good("metadata of scalars", {**flags(metadata={"a": "b", "c": 1.5}), "metadata": {"d": True}}),
    bad("metadata with an object", flags(metadata={"a": {}}), "metadata-type"),
    bad("metadata with null", {**flags(), "metadata": {"a": None}}, "metadata-type"),
    bad("metadata that is a list", flags(metadata=[]), "wrong-metadata"),
    rule("anyRule", {"!": VAR}),
    rule("anyRule of one group", {"==": [1, 1], "!=": [1, 2]}, "several-operators"),
    bad_rule("anyRule of two groups", {"==": [1, 1], "!": 1}, "several-operators"),
    bad_rule("anyRule unknown", {"equals": [1, 1]}, "unknown-operator"),
    bad_rule("anyRule unlisted", {"?:": [1, "on", "off"]}, "unlisted-operator"),
    bad_rule("anyRule that is a list", [VAR], "not-a-rule"),
    rule("varRule", {"var": ["x", None]}),
    rule("varRule of everything", {"var": None}),
    rule("varRule of flagd", {"var": "$flagd.timestamp"}),
    rule("varRule of three", {"var": ["x", 1, 2]}, "wrong-arity"),
    rule("varRule of a list with flagd's", {"var": ["$flagd.x"]}, "bad-flagd-variable"),
    rule("varRule of an unknown rule", {"var": {"x": 1}}, "unknown-operator"),
    bad_rule("varRule of flagd's unknown", {"var": "$flagd.x"}, "bad-flagd-variable"),
    rule("missingRule", {"missing": []}),
    bad_rule("missingRule of text", {"missing": "x"}, "bad-argument"),
    bad_rule("missingRule of a rule", {"missing": [VAR]}, "bad-argument"),
    rule("missingSomeRule", {"missing_some": [1, ["x"]]}),
    bad_rule("missingSomeRule with a rule", {"missing_some": [VAR, ["x"]]}, "bad-argument"),
    bad_rule("missingSomeRule of three", {"missing_some": [1, ["x"], 1]}, "wrong-arity"),
    rule("binaryOrTernaryRule", {"substr": ["x", 1, 2]}),
    bad_rule("binaryOrTernaryRule of four", {"<": [1, 2, 3, 4]}, "wrong-arity"),
    rule("binaryOrTernaryOp of two", {"<=": [1, VAR]}),
    bad_rule("binaryOrTernaryOp bare", {"<": 1}, "wrong-arity"),
    rule("binaryRule", {"in": [VAR, [1, 2]]}),
    bad_rule("binaryRule of three", {">": [3, 2, 1]}, "wrong-arity"),
    rule("binaryOp", {"==": [None, False]}),
    bad_rule("binaryOp of one", {"==": [1]}, "wrong-arity"),
    rule("reduceRule", {"reduce": [VAR, {"var": "current"}, 0]}),
    bad_rule("reduceRule of two", {"reduce": [VAR, {"var": "current"}]}, "wrong-arity"),
    rule("associativeRule", {"*": [2, 2, 2]}),
    rule("associativeOp", {"*": [2, VAR]}),
    bad_rule("associativeOp of one", {"*": [2]}, "wrong-arity"),
    rule("unaryRule", {"!!": VAR}),
    rule("unaryOp of one", {"!": [VAR]}),
    rule("unaryOp of two", {"!": [1, 2]}, "wrong-arity"),
    bad_rule("unaryOp of nothing", {"!": {}}, "empty-rule"),
    rule("variadicRule", {"if": ["on"]}),
    rule("variadicRule that names no variant", {"if": [VAR, "onn"]}, "unknown-outcome"),
    bad_rule("variadicRule of none", {"cat": []}, "wrong-arity"),
    rule("variadicOp", {"and": ["on"]}),
    bad_rule("variadicOp bare", {"max": 1}, "wrong-arity"),
    rule("stringCompareRule", {"ends_with": [VAR, "x"]}),
    bad_rule("stringCompareRule with a number", {"ends_with": [VAR, 1]}, "bad-argument"),
    rule("stringCompareArgs", {"starts_with": ["x", "x"]}),
    bad_rule("stringCompareArgs of one", {"starts_with": ["x"]}, "wrong-arity"),
    rule("stringCompareArg that is empty", {"starts_with": [{}, "x"]}, "empty-rule"),
    bad_rule("stringCompareArg by reference", {"starts_with": [SHARED, "x"]}, "reference-position"),
    bad_rule("stringCompareArg of a list", {"starts_with": [["x"], "x"]}, "bad-argument"),
    rule("ruleSemVer", {"sem_ver": [VAR, "~", "1.0.0-a.1+b"]}),
    bad_rule("ruleSemVer by a rule", {"sem_ver": [{"cat": ["1"]}, "=", "1.0.0"]}, "lax-version"),
    bad_rule("ruleSemVer by reference", {"sem_ver": [SHARED, "=", "1.0.0"]}, "lax-version"),
    bad_rule("ruleSemVer unknown comparison", {"sem_ver": [VAR, "==", "1.0.0"]}, "bad-argument"),
    bad_rule("ruleSemVer of two", {"sem_ver": [VAR, "="]}, "wrong-arity"),
    rule("semVerString", {"sem_ver": ["0.0.0", "=", "10.20.30-0a.0.a-1"]}),
    bad_rule("semVerString with a leading zero", {"sem_ver": [VAR, "=", "01.0.0"]}, "bad-argument"),
    bad_rule("semVerString with a line break", {"sem_ver": [VAR, "=", "1.0.0\n"]}, "bad-argument"),
    bad_rule("semVerString as a number", {"sem_ver": [VAR, "=", 1]}, "lax-version"),
    rule("fractionalRule", {"fractional": [VAR, ["on", 1], ["off", 1]]}),
    bad_rule("fractionalRule bare", {"fractional": "x"}, "wrong-arity"),
    rule("fractionalOp without buckets", {"fractional": [VAR]}, "bad-bucket"),
    bad_rule("fractionalOp by text", {"fractional": ["x", ["on", 1]]}, "bad-bucket"),
    bad_rule("fractionalOp by reference", {"fractional": [SHARED, ["on"]]}, "reference-position"),
    bad_rule("fractionalOp by rule, late", {"fractional": [["on"], VAR]}, "bad-bucket"),
    rule("fractionalShorthandOp", {"fractional": [["on"]]}),
    bad_rule("fractionalShorthandOp of none", {"fractional": []}, "wrong-arity"),
    rule("fractionalWeightArg", {"fractional": [[SHARED, {"-": [VAR, 1]}], ["off", 0]]}),
    rule("fractionalWeightArg as a float", {"fractional": [["on", 25.0]]}),
    rule("fractionalWeightArg too large", {"fractional": [["on", 2**31]]}, "weight-too-large"),
    bad_rule("fractionalWeightArg of a fraction", {"fractional": [["on", 0.5]]}, "bad-weight"),
    bad_rule("fractionalWeightArg below zero", {"fractional": [["on", -1]]}, "bad-weight"),
    bad_rule("fractionalWeightArg null", {"fractional": [["on", None]]}, "bad-weight"),
    bad_rule("fractionalWeightArg boolean", {"fractional": [["on", True]]}, "bad-weight"),
    bad_rule("fractionalWeightArg reference", {"fractional": [["on", SHARED]]}, "reference-position"),
    bad_rule("fractionalWeightArg of three", {"fractional": [["on", 1, 1]]}, "bad-bucket"),
    bad_rule("fractionalWeightArg of none", {"fractional": [[]]}, "bad-bucket"),
    rule("reference", {"!": SHARED}),
    rule("reference to nothing", {"!": {"$ref": "none"}}, "unknown-reference"),
    bad_rule("reference to a number", {"!": {"$ref": 1}}, "bad-argument"),
    bad_rule("reference with company", {"!": {"$ref": "shared", "a": 1}}, "several-operators"),
    bad_rule("reference as the whole", SHARED, "reference-position"),
    rule("args", {"if": [VAR, SHARED, "on"]}),
    bad_rule("args that are empty", {"if": [{}]}, "empty-rule"),
    rule("primitive", {"merge": [None, True, 1.5, "x", [1]]}),
    rule("primitive list of anything", {"merge": [[{"x": 1}]]}, "unknown-operator"),
)  # fmt: skip
