"""`flagstaff override`, as far as it needs no cluster."""

from __future__ import annotations

import argparse

import pytest

from controller.api.meta import Resource
from controller.api.parsing import require_object_name
from controller.cli import override
from controller.cli.printing import Exit

SPEC = {
    "flagSetRef": {"name": "checkout"},
    "flag": "pay",
    "reason": "INC-1",
    "expiresAt": "2026-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("flag_set", "flag", "name"),
    [
        ("checkout", "pay", "checkout.pay"),
        ("checkout", "new-pay", "checkout.new-pay"),
        ("checkout", "Pay", "checkout.pay-"),
        ("checkout", "a/b", "checkout.a-b-"),
        ("checkout", "é" * 300, "checkout."),
        ("checkout", "a" * 300, f"checkout.{'a' * 100}-"),
    ],
)
def test_the_default_name_is_that_of_an_object_and_of_this_flag(flag_set: str, flag: str, name: str) -> None:
    made = override.default_name(flag_set, flag)
    assert made.startswith(name)
    assert len(made) <= 253
    assert made == override.default_name(flag_set, flag)
    assert (made == name) == (name[-1] not in "-.")
    require_object_name(made)


@pytest.mark.parametrize("what", ["pay=off", "checkout/pay", "/pay=off", "checkout/=off", "checkout"])
def test_a_flag_without_set_or_variant_is_wrong_usage(what: str) -> None:
    parser = argparse.ArgumentParser()
    override.configure_override(parser)
    options = parser.parse_args(["set", what, "--reason", "INC-1", "--for", "2h"])
    with pytest.raises(Exit, match="write SET/FLAG=VARIANT"):
        options.run(options)


def test_an_audience_that_is_no_json_is_wrong_usage() -> None:
    parser = argparse.ArgumentParser()
    override.configure_override(parser)
    words = ["set", "checkout/pay=off", "--reason", "INC-1", "--for", "2h", "--audience", "{"]
    options = parser.parse_args(words)
    with pytest.raises(Exit, match="--audience is not JSON"):
        options.run(options)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({**SPEC, "variant": "off"}, "off"),
        ({**SPEC, "disabled": True}, "disabled"),
        ({**SPEC, "variant": "off", "audience": {"var": "a"}}, "off (audience)"),
    ],
)
def test_a_row_names_value_state_and_who_set_it(spec: dict[str, object], value: str) -> None:
    meta = {"name": "off", "namespace": "shop", "annotations": {"flagstaff.dev/set-by": "ada"}}
    body = {"kind": "FlagOverride", "metadata": meta, "spec": spec, "status": {"state": "Active"}}
    row = override.override_row(Resource.of(body))
    assert row == (
        "off", "checkout", "pay", value, "Active", "-", "-", "2026-01-01T00:00:00Z", "ada", "INC-1",
    )  # fmt: skip
