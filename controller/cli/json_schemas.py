"""The JSON Schemas that `flagstaff schema` prints, and that the folder schemas/ holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from controller.api.flagpolicy import MatchCondition, PolicyFile, PolicyValidation, PolicyVariable
from controller.api.flagset_status import HistoryEntry
from controller.api.manifests_writer import documentation
from controller.authoring.flag_life import TYPES
from controller.authoring.flag_test_files import EXPECTED_FIELDS, MAY_HOLD, TEST_FIELDS
from controller.authoring.flag_test_reports import TestRunRecord
from controller.cli.change_plan import ChangePlan
from controller.cli.cluster_checks import CheckResult
from controller.cli.flag_changes import FlagChanges
from controller.cli.flag_trace import FlagTrace
from controller.cli.object_rows import SHOWN, FlagRow, ObjectRow
from controller.cli.object_tree import TreeNode
from controller.cli.reconcile_stages import ReachedStage
from controller.cli.rollout_view import RolloutRecord
from controller.cli.stats import KindStats
from controller.flagsets.segments import CSV, LINES
from controller.rollouts.rollout_plan import RolloutPlan
from controller.validation.object_problems import schemas
from controller.validation.structural_schema import json_schema
from evaluator.flags.known_operators import (
    FILE,
    MEMBERSHIP,
    OPERATORS,
    PREREQUISITE,
    SCHEDULE,
    UNLISTED,
    Arity,
)
from evaluator.resolving.resolution import ErrorCode, EvaluationReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.json_schema import JsonSchemaMode

    from controller.api.kind import ResourceType


DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_NAME: Final = "^.{1,}$"
_MEANINGS: Final = {
    "fractional": "Percentages: [VARIANT, WEIGHT] pairs, after an optional value to hash.",
    "sem_ver": "Compares versions: [VERSION, OPERATOR, VERSION].",
    "starts_with": "Whether a text begins so: [TEXT, BEGINNING].",
    "ends_with": "Whether a text ends so: [TEXT, END].",
    "var": "A value of the evaluation context, by its path, and a default.",
    "if": "[CONDITION, THEN, ELSE]; more conditions may follow.",
    "in": "Whether a value is in a list, or a text in a text: [VALUE, LIST].",
}
_SCALAR: Final = {"type": ["string", "number", "boolean"]}


def definition_schema(*, layer: bool) -> dict[str, Any]:
    """The schema of a file; in a `layer`, flags may lack fields, and null removes what lower layers have."""
    what = "A layer of a flag set" if layer else "Flag definitions"
    return {
        "$schema": DRAFT,
        "title": what,
        "description": f"{what}, as flagd and Flagstaff read it.",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "flags": {
                "description": "Flags by key, or a list of flags with a key each.",
                "oneOf": [_reference_to("#/definitions/flag", layer=layer), _LIST],
            },
            "$evaluators": {
                "description": 'Shared rules by name, for {"$ref": NAME}.',
                **_reference_to("#/definitions/rule", layer=layer),
            },
            "metadata": {
                "description": "Of the flag set; part of each flag's own, unless the flag has another.",
                **_metadata(layer=layer),
                "properties": {
                    "flagSetId": {"description": "The identity of the set.", "type": "string"},
                    "version": {"description": "The version of the set.", "type": "string"},
                },
            },
            "$archived": {
                "description": "Flags that are gone, by key: no flag may have one of these keys again.",
                "type": "object",
                "patternProperties": {_NAME: _ARCHIVED},
                "additionalProperties": False,
            },
        },
        **({} if layer else {"required": ["flags"]}),
        "definitions": {"flag": _flag(layer=layer), "rule": _RULE, **_ARITIES},
    }


_ARCHIVED: Final = {
    "type": "object",
    "properties": {
        "date": {"description": "When it was archived.", "type": "string"},
        "owner": {"description": "The team or person to ask."},
        "default": {"description": "The variant that everybody got at last.", "type": ["string", "null"]},
    },
}
_LIST: Final = {
    "type": "array",
    "items": {
        "allOf": [
            {"$ref": "#/definitions/flag"},
            {
                "type": "object",
                "required": ["key"],
                "properties": {"key": {"description": "The flag's key.", "type": "string", "minLength": 1}},
            },
        ]
    },
}


def _reference_to(reference: str, *, layer: bool) -> dict[str, Any]:
    """An object of named things of one schema; null removes one in a layer."""
    thing: dict[str, Any] = {"$ref": reference}
    if layer:
        thing = {"anyOf": [thing, {"type": "null"}]}
    return {"type": "object", "patternProperties": {_NAME: thing}, "additionalProperties": False}


def _metadata(*, layer: bool) -> dict[str, Any]:
    types = [*_SCALAR["type"], *(["null"] if layer else [])]
    return {"type": "object", "patternProperties": {_NAME: {"type": types}}, "additionalProperties": False}


def _flag(*, layer: bool) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "state": {
                "description": "DISABLED: the application's own default is used.",
                "enum": ["ENABLED", "DISABLED"],
            },
            "variants": {
                "description": "Values by name, all of one type.",
                "type": "object",
                "patternProperties": {_NAME: {}},
                "additionalProperties": False,
                **({} if layer else {"minProperties": 1, "anyOf": _OF_ONE_TYPE}),
            },
            "defaultVariant": {
                "description": "The variant if no rule chooses one; null: the application's own default.",
                "type": ["string", "null"],
            },
            "targeting": {
                "description": "A JSONLogic rule that returns the name of a variant.",
                "$ref": "#/definitions/rule",
            },
            "metadata": {
                "description": "Part of each answer.",
                **_metadata(layer=layer),
                "properties": _LIFE,
            },
        },
        **({} if layer else {"required": ["state", "variants"]}),
    }


_LIFE: Final = {
    "owner": {"description": "The team or person to ask."},
    "description": {"description": "What the flag is for."},
    "type": {"description": "How long it is meant to live; ops and permission stay.", "enum": [*TYPES, None]},
    "expires": {"description": "The last day, such as 2026-12-31, or a time with a zone. Changes no answer."},
    "permanent": {"description": "true: it stays, whatever its type.", "type": ["boolean", "null"]},
    "ticket": {"description": "Where its removal is planned."},
    "defaultValue": {"description": "The code's default, for the manifest of OpenFeature's CLI."},
}
"""Keys of a flag's metadata that have a meaning here; `patternProperties` judge their values, too."""
_OF_ONE_TYPE: Final = [
    {"additionalProperties": False, "patternProperties": {_NAME: {"type": type_}}}
    for type_ in ("boolean", "string", "number", "object")
]


def _arguments(arity: Arity) -> dict[str, Any]:
    """A list of arguments, or the only one by itself."""
    several: dict[str, Any] = {
        "type": "array",
        "items": {"$ref": "#/definitions/rule"},
        "minItems": arity.least,
    }
    if arity.most is not None:
        several["maxItems"] = arity.most
    single = {"allOf": [{"not": {"type": "array"}}, {"$ref": "#/definitions/rule"}]}
    return {"anyOf": [several, single]} if arity.admits(1) else several


def _arity_name(arity: Arity) -> str:
    return f"arguments-{arity}".replace(" ", "-")


_ARITIES: Final = {_arity_name(arity): _arguments(arity) for arity in OPERATORS.values()}


_REFERENCE: Final = {"$ref": "#/definitions/rule"}
_COMPUTED: Final = {"allOf": [{"type": "object"}, _REFERENCE]}
_TEXT: Final = {"anyOf": [{"type": "string"}, _COMPUTED]}
_VERSION: Final = {
    "anyOf": [
        {
            "type": "string",
            "pattern": r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$",
        },
        _COMPUTED,
    ]
}
_COMPARISONS: Final = ("=", "!=", ">", "<", ">=", "<=", "~", "^")
_PART: Final = {
    "type": "array",
    "minItems": 1,
    "maxItems": 2,
    "items": [_REFERENCE, {"anyOf": [{"type": "integer", "minimum": 0}, _COMPUTED]}],
}
_PATH: Final = {"type": "string", "pattern": r"^(?!\$flagd\.(?!(flagKey|timestamp)$))"}
"""Of what begins with $flagd there are two values."""
_TEXTS: Final = {"type": "array", "minItems": 2, "maxItems": 2, "items": _TEXT}
_LIST_IN_FILE: Final = {
    "description": "The values of a file beside the definitions; in $evaluators only.",
    "type": "object",
    "additionalProperties": False,
    "required": [FILE],
    "properties": {
        FILE: {
            "description": f"A CSV file (*{CSV}), or one with a value on each line (*{LINES}).",
            "type": "string",
            "pattern": r"^[^/\\]*\.segment\.(csv|txt)$",
        },
        "column": {"description": "The column of a CSV file that has the values.", "type": "string"},
    },
}
_PARTICULAR: Final[dict[str, Any]] = {
    "starts_with": _TEXTS,
    "ends_with": _TEXTS,
    "sem_ver": {
        "type": "array",
        "minItems": 3,
        "maxItems": 3,
        "items": [_VERSION, {"enum": [*_COMPARISONS]}, _VERSION],
    },
    "fractional": {
        "anyOf": [
            {"type": "array", "minItems": 1, "items": _PART},
            {"type": "array", "minItems": 1, "items": [_COMPUTED], "additionalItems": _PART},
        ]
    },
    MEMBERSHIP: {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": [{"$ref": "#/definitions/rule"}, {"anyOf": [_LIST_IN_FILE, {"$ref": "#/definitions/rule"}]}],
    },
    "var": {
        "anyOf": [
            _PATH,
            {"type": "number"},
            _COMPUTED,
            {"type": "array", "maxItems": 2, "items": [{"anyOf": [_PATH, {"not": {"type": "string"}}]}]},
        ]
    },
}
"""Operators whose arguments are of certain types."""


def _operator(name: str, arity: Arity) -> dict[str, Any]:
    meaning = {"description": _MEANINGS[name]} if name in _MEANINGS else {}
    return {**meaning, "allOf": [_PARTICULAR.get(name, {"$ref": f"#/definitions/{_arity_name(arity)}"})]}


_RULE: Final = {
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#/definitions/rule"}},
        {
            "type": "object",
            "maxProperties": 1,
            "additionalProperties": False,
            "properties": {
                "$ref": {"description": "A rule of $evaluators.", "type": "string"},
                PREREQUISITE: {
                    "description": "True for users who get the variant of another flag: [KEY, VARIANT].",
                    "type": "array",
                    "items": {"type": "string"},
                    "minItems": 2,
                    "maxItems": 2,
                },
                SCHEDULE: {
                    "description": "True between two times: [FROM, TO, TIME ZONE]; one may be null.",
                    "type": "array",
                    "items": {"type": ["string", "null"]},
                    "minItems": 2,
                    "maxItems": 3,
                },
                **{name: _operator(name, arity) for name, arity in OPERATORS.items()},
                **{name: {"$ref": "#/definitions/rule"} for name in sorted(UNLISTED)},
            },
        },
    ]
}


_LISTS: Final = {
    "get": ObjectRow,
    "get-flags": FlagRow,
    "history": HistoryEntry,
    "tree": TreeNode,
    "trace": FlagTrace,
    "stats": KindStats,
    "check": CheckResult,
    "rollout-plan": RolloutPlan,
}
_SINGLE: Final = {
    "reconcile": ReachedStage,
    "diff": FlagChanges,
    "plan": ChangePlan,
    "rollout-status": RolloutRecord,
    "test": TestRunRecord,
}
"""Verbs that print one object, or one a line."""
_ANY_METADATA: Final = {"type": "object", "properties": {"name": {"type": "string"}}}


_EXPECTED: Final[Mapping[str, Any]] = {
    "variant": {"description": "The variant's name; null: the code default.", "type": ["string", "null"]},
    "value": {"description": "The value."},
    "reason": {"description": "The reason.", "enum": [*EvaluationReason]},
    "errorCode": {"description": "The error.", "enum": [*ErrorCode, None]},
    "metadata": {"description": "Metadata that the answer has, among others.", "type": "object"},
}
_TEST_FIELDS: Final[Mapping[str, Any]] = {
    "name": {"description": "Says what has to hold; one name in a layer.", "type": "string"},
    "flag": {"description": "The key of the flag that is tested.", "type": "string"},
    "evaluator": {"description": "The name in `$evaluators` of the rule that is tested.", "type": "string"},
    "matrix": {
        "description": "Lists of values by name: one case for each combination; `${name}` is the value.",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
    },
    "context": {"description": "The evaluation context.", "type": "object"},
    "time": {"description": "What $flagd.timestamp says, such as 2026-12-24T12:00:00Z.", "type": "string"},
    "at": {
        "description": "Where each fractional finds the user, in percent of all, in place of the hash.",
        "type": ["number", "string"],
        "minimum": 0,
        "exclusiveMaximum": 100,
    },
    "type": {
        "description": "The type that the caller asks for.",
        "enum": ["boolean", "string", "integer", "float", "object"],
    },
    "expect": {
        "description": "What the answer has to be.",
        "type": "object",
        "minProperties": 1,
        "properties": {field: _EXPECTED[field] for field in EXPECTED_FIELDS},
        "additionalProperties": False,
    },
    "distribution": {
        "description": "How many percent of all users get a variant, such as 10 ± 1.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": ["number", "string"]},
    },
    "missing": {"description": "The flag must not be there.", "const": True},
}


def json_schemas() -> dict[str, dict[str, Any]]:
    """The schemas by name: definitions, layer, flagtest, policy, kinds, the kinds' own names in lower case,
    output-VERB.
    """
    kinds = {type_.kind.lower(): kind_schema(type_) for type_ in SHOWN}
    outputs = {f"output-{verb}": _output(list[record], [record]) for verb, record in _LISTS.items()}  # type: ignore[valid-type] # known at run time alone
    outputs |= {f"output-{verb}": _output(record, [record]) for verb, record in _SINGLE.items()}
    return {
        "definitions": definition_schema(layer=False),
        "layer": definition_schema(layer=True),
        "flagtest": flag_test_schema(),
        "policy": _output(
            PolicyFile, [PolicyFile, PolicyValidation, PolicyVariable, MatchCondition], "validation"
        ),
        "kinds": _any_kind(kinds),
        **kinds,
        **outputs,
    }


def flag_test_schema() -> dict[str, Any]:
    """The schema of a file of tests."""
    test = {
        "description": MAY_HOLD,
        "type": "object",
        "required": ["name"],
        "oneOf": [{"required": ["flag"]}, {"required": ["evaluator"]}],
        "anyOf": [{"required": [field]} for field in ("expect", "distribution", "missing")],
        "properties": {field: _TEST_FIELDS[field] for field in TEST_FIELDS},
        "additionalProperties": False,
    }
    return {
        "$schema": DRAFT,
        "title": "Tests of flags",
        "description": "Tests of flags, as `flagstaff test` and FlagSets run them.",
        "type": "object",
        "required": ["tests"],
        "properties": {"$schema": {"type": "string"}, "tests": {"type": "array", "items": test}},
        "additionalProperties": False,
    }


def kind_schema(type_: ResourceType) -> dict[str, Any]:
    """The schema of a manifest, as its CustomResourceDefinition has it, with unknown fields refused."""
    versions = schemas(type_)
    whole = json_schema(versions[type_.version])
    properties = {name: field for name, field in whole["properties"].items() if name != "status"}
    properties["apiVersion"] = {"enum": [f"{type_.group}/{version}" for version in versions]}
    properties["kind"] = {"const": type_.kind}
    properties["metadata"] = _ANY_METADATA
    required = ["apiVersion", "kind", *whole.get("required", ())]
    return {
        "$schema": DRAFT,
        "title": type_.kind,
        "description": whole.get("description", ""),
        "type": "object",
        "required": list(dict.fromkeys(required)),
        "properties": {**properties, "status": {}},
        "additionalProperties": False,
    }


def _any_kind(kinds: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A schema of any manifest, which judges those of our kinds."""
    bodies = {
        name: {key: part for key, part in schema.items() if key != "$schema"}
        for name, schema in kinds.items()
    }
    judged = [
        {
            "if": {"required": ["kind"], "properties": {"kind": {"const": body["title"]}}},
            "then": {"$ref": f"#/definitions/{name}"},
        }
        for name, body in bodies.items()
    ]
    return {
        "$schema": DRAFT,
        "title": "Manifests of Flagstaff's kinds; others are accepted",
        "type": "object",
        "allOf": judged,
        "definitions": bodies,
    }


def _output(shape: Any, records: list[type[Any]], mode: JsonSchemaMode = "serialization") -> dict[str, Any]:
    """The schema of what a verb prints as JSON, or reads of a file, with the docstrings of its fields."""
    schema = TypeAdapter(shape).json_schema(by_alias=True, mode=mode)
    described = {record.__name__: documentation(record) for record in records}
    for name, definition in {**schema.get("$defs", {}), str(schema.get("title")): schema}.items():
        for field, text in described.get(name, {}).items():
            words = field.split("_")
            alias = words[0] + "".join(word.capitalize() for word in words[1:])
            if alias in definition.get("properties", {}):
                definition["properties"][alias]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
