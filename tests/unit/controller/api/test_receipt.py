"""The names of FlagReceipts."""

from __future__ import annotations

import pytest

from controller.api.flagreceipt import receipt_name


@pytest.mark.parametrize(
    ("one", "other"), [(("a", "b.c"), ("a.b", "c")), (("x" * 253, "p"), ("x" * 252, "p"))]
)
def test_each_pair_of_configuration_and_proxy_has_a_name_of_its_own(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert receipt_name(*one) != receipt_name(*other)
    assert len(receipt_name(*one)) <= 253
