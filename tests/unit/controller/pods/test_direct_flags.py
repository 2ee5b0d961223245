"""The flags in an annotation: JSON or YAML, and refusals that name the place."""

from __future__ import annotations

import json

import pytest

from controller.pods.carried_flags import MOST_APPLIED, MOST_BYTES, read_flags
from controller.pods.installation import PodRefused

WHERE = "annotation openfeature.dev/flags"
YAML = """\
flags:
  banner:
    state: ENABLED
    variants:
      on: true
      off: false
    defaultVariant: on
"""
JSON = json.dumps(
    {"flags": {"banner": {"state": "ENABLED", "variants": {"on": True}, "defaultVariant": "on"}}}, indent=2
)


def refusal(text: str, most: int = MOST_BYTES) -> str:
    with pytest.raises(PodRefused) as refused:
        read_flags(text, WHERE, most)
    return str(refused.value)


@pytest.mark.parametrize("text", [JSON, f"\n {JSON}", YAML, "{flags: {}}", '{"flags": {}}'])
def test_json_and_yaml_are_read(text: str) -> None:
    flags, warnings = read_flags(text, WHERE)
    assert warnings == ()
    assert ("banner" in flags.flags) == ("banner" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            JSON.replace('"on"\n', '"of"\n'),
            f'{WHERE}: line 8: $.flags.banner.defaultVariant: `variants` has no "of"',
        ),
        (JSON.removesuffix("}"), f"{WHERE}: line 1: `{{` is opened here and not closed"),
        (YAML.replace("variants:", "variant:"), f"{WHERE}: line 2: $.flags.banner: "),
        ("", f"{WHERE}: the document is empty"),
        ("[]", f"{WHERE}: line 1: "),
        ("flags: [", f"{WHERE}: line 1: "),
        (YAML.replace("ENABLED", "enabled"), f"{WHERE}: line 3: $.flags.banner.state: "),
    ],
)
def test_mistake_is_refused_with_its_line_and_path(text: str, message: str) -> None:
    assert refusal(text).startswith(message)
    assert refusal(text).endswith("correct it and apply again")


def test_flag_without_variants_is_refused() -> None:
    assert "$.flags.banner" in refusal('{"flags": {"banner": {"state": "ENABLED"}}}')


def test_control_characters_of_the_text_are_not_repeated() -> None:
    assert refusal('{"flags": {"a\\u001b[31m\\n": {}}}').isprintable()


def test_more_than_64_kib_are_pointed_to_server_side_apply_and_a_flag_set() -> None:
    message = refusal("#" * (MOST_BYTES + 1))
    assert f"has {MOST_BYTES + 1} bytes, more than {MOST_BYTES}" in message
    assert "kubectl apply --server-side, which allows 128 KiB" in message
    assert "FlagSet" in message


@pytest.mark.parametrize("most", [MOST_BYTES, MOST_APPLIED])
def test_more_than_128_kib_are_pointed_to_a_flag_set_alone(most: int) -> None:
    message = refusal("#" * (MOST_APPLIED + 1), most)
    assert "--server-side" not in message
    assert "keep the flags in a FlagSet and name it with flagstaff.dev/flagset" in message


def test_problem_that_refuses_nothing_is_a_warning() -> None:
    _, warnings = read_flags(JSON.replace('"flags"', '"flagz": 1, "flags"', 1), WHERE)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{WHERE}: line 2: ")
