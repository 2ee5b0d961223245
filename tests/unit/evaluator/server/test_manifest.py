"""OpenFeature's manifest, read only."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from evaluator.flags.model import CONFIDENTIAL_KEY, Flag
from evaluator.flags.openfeature_manifest import LeftOut, ManifestFlag, manifest_flag
from evaluator.http.messages import Headers, Request, Response
from evaluator.server.manifest import PATH, ManifestEndpoint
from tests.worlds.evaluator import (
    ALL,
    BOOLEAN,
    DISABLED,
    FLOAT,
    INTEGER,
    NO_DEFAULT,
    OBJECT,
    STRING,
    World,
    answer_of,
    flag,
    world,
)


def get(served: World, path: str = PATH, *, headers: Headers = ()) -> tuple[int, Any]:
    endpoint = ManifestEndpoint(served.service)
    ask = endpoint.get if path == PATH else endpoint.get_of_set
    response = answer_of(ask(Request("GET", path, "", headers, b"", "127.0.0.1:1")))
    assert isinstance(response, Response)
    return response.status, orjson.loads(response.body)


@pytest.mark.parametrize(
    ("defined", "entry"),
    [
        (BOOLEAN, ManifestFlag("boolean", "boolean", default=True)),
        (STRING, ManifestFlag("string", "string", "alpha")),
        (INTEGER, ManifestFlag("integer", "integer", 10)),
        (FLOAT, ManifestFlag("float", "float", 0.5)),
        (flag("mixed", {"a": 1, "b": 0.5}, "a"), ManifestFlag("mixed", "float", 1)),
        (OBJECT, ManifestFlag("object", "object", {"a": [1, {"b": None}], "c": "x"})),
        (DISABLED, ManifestFlag("disabled", "boolean", default=True)),
        (
            flag("code", {"on": True}, metadata={"defaultValue": False, "description": "New"}),
            ManifestFlag("code", "boolean", default=False, description="New"),
        ),
        (
            NO_DEFAULT,
            LeftOut(
                "no/default", "it has no default variant; write its code default as metadata.defaultValue"
            ),
        ),
        (
            flag("odd", {"a": "x", "b": True}, "a"),
            LeftOut("odd", "its variants are of several types: boolean, string"),
        ),
        (
            flag("other", {"a": 1}, "a", metadata={"defaultValue": "1"}),
            LeftOut("other", "metadata.defaultValue must be of the type of its variants: integer"),
        ),
        (
            flag("key", {"a": "s3cret"}, "a", metadata={CONFIDENTIAL_KEY: True}),
            LeftOut("key", "its values come from a Secret"),
        ),
    ],
    ids=lambda value: value.key,
)
def test_a_flag_has_the_type_of_its_variants_and_a_default(
    defined: Flag, entry: ManifestFlag | LeftOut
) -> None:
    assert manifest_flag(defined) == entry


def test_the_answer_lists_flags_and_why_one_is_left_out() -> None:
    status, content = get(world(BOOLEAN, NO_DEFAULT))
    assert (status, content["flags"]) == (200, [{"key": "boolean", "type": "boolean", "defaultValue": True}])
    assert [entry["key"] for entry in content["leftOut"]] == ["no/default"]


def test_a_flag_set_has_a_base_url_of_its_own() -> None:
    served = world(BOOLEAN, flag("theirs", {"a": "x"}, "a", metadata={"flagSetId": "a/b"}))
    status, content = get(served, f"/sets/a/b{PATH}")
    assert (status, [entry["key"] for entry in content["flags"]]) == (200, ["theirs"])
    assert get(served, headers=(("flagd-selector", "flagSetId=a/b"),))[1] == content


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"/sets/nobody{PATH}", "no flag set 'nobody' is served here"),
        (
            "/sets/a",
            "there is no such path; the manifest of a flag set is at /sets/ID/openfeature/v0/manifest",
        ),
    ],
)
def test_what_is_not_served_gets_404_in_the_api_s_form(path: str, message: str) -> None:
    assert get(world(*ALL), path) == (404, {"error": {"message": message, "status": 404, "details": []}})


def test_a_bad_selector_gets_400_and_no_flags_yet_503() -> None:
    assert get(world(BOOLEAN), headers=(("flagd-selector", "colour=red"),))[0] == 400
    assert get(world())[0] == 503
