"""`sem_ver` and `fractional`."""

from __future__ import annotations

from tests.contract.differences import calls as c
from tests.contract.differences.row import CRASH, FIRST, V2, V3, Difference

FLAGD = (
    Difference(
        "a partial version with a pre-release or a build", "sem_ver",
        {"if": [{"sem_ver": ["1.2-rc", "<", "1.3.0"]}, "true", "false"]}, "false", "true",
        "golang.org/x/mod/semver takes it for none; the core pads it",
        c.version_differs,
    ),
    Difference(
        "a version of a million or more", "sem_ver",
        {"if": [{"sem_ver": [1_000_000, ">", "1.0.0"]}, "true", "false"]}, "false", "true",
        "Go writes it with an exponent, which is no version",
        c.any_part(lambda part: c.is_number(part) and abs(part) >= 1e6),
    ),
    Difference(
        "an empty bucketing text", "fractional", {"fractional": ["", ["a", 1]]}, "a", "DEFAULT",
        "flagd hashes it",
        c.generation("v2", lambda call: call.parts[0] == ""),
        generations=V2,
    ),
    Difference(
        "null as bucketing value", "fractional", {"fractional": [FIRST, ["a", 1]]}, "a", "DEFAULT",
        "flagd falls back to the targeting key; the core gives up",
        c.generation("v2", lambda call: call.parts[0] is None),
        context={"targetingKey": "user"}, generations=V2,
    ),
    Difference(
        "a targeting key that is no text", "fractional", {"fractional": [["a", 1]]}, "DEFAULT",
        CRASH + "TypeError",
        "null to flagd, the core crashes",
        c.generation("v2", lambda call: not isinstance(c.targeting_key(call), str | None)),
        context={"targetingKey": 5}, generations=V2,
    ),
    Difference(
        "a bucket with three elements", "fractional", {"fractional": ["user", ["a", 1, 2]]}, "a", "DEFAULT",
        "flagd looks at two",
        c.any_bucket(lambda bucket: len(bucket) > 2),
    ),
    Difference(
        "a null weight", "fractional", {"fractional": ["user", ["a", None]]}, "a", "DEFAULT",
        "flagd takes it for 1",
        c.any_bucket(lambda bucket: len(bucket) == 2 and bucket[1] is None),
    ),
    Difference(
        "a whole weight that is a float", "fractional", {"fractional": ["user", ["a", 1.0]]}, "a", "DEFAULT",
        "1.0 is 1 to flagd",
        c.any_bucket(lambda bucket: len(bucket) == 2 and isinstance(bucket[1], float)),
    ),
    Difference(
        "a bucket whose result is a list or an object", "fractional", {"fractional": ["user", [["a"], 1]]},
        "DEFAULT", "GENERAL",
        "flagd takes the fraction for invalid",
        c.any_bucket(lambda bucket: bool(bucket) and c.is_container(bucket[0])),
    ),
    Difference(
        "an integer beyond 2^53 as bucketing value", "fractional",
        {"fractional": [2**70, ["a", 1], ["x", 1]]}, "a", "x",
        "read as a float64, as gRPC brings it; the core hashes the integer",
        c.generation("v3", lambda call: c.inexact_within(call.parts[0])),
        generations=V3,
    ),
    Difference(
        "fractional within a loop", "fractional", {"map": [[1], {"fractional": [["a", 1]]}]}, "GENERAL",
        CRASH + "AttributeError",
        "its evaluation context is the element, which the core expects to be an object",
        lambda call: not isinstance(call.scope, dict) or "$flagd" not in call.scope,
    ),
)  # fmt: skip
