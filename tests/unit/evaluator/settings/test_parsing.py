from __future__ import annotations

from typing import Any

import pytest

from evaluator.settings import InvalidSettingError, options


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), (0, 0), ("0s", 0), ("600s", 600), ("1.5h", 5400), ("250ms", 0.25), ("1h15m", 4500),
        (".5s", 0.5), ("1.s", 1), ("+2m", 120), ("3us", 3e-6), ("3µs", 3e-6), ("3μs", 3e-6), ("5ns", 5e-9),
    ],
)  # fmt: skip
def test_a_duration_is_read_as_go_writes_it(text: object, seconds: float) -> None:
    assert options.duration(text, "--d") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "s10", "-1s", "1 s", "1d", ".s", "9" * 400 + "h", "٣s", 10, True, None, [1]]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(InvalidSettingError, match=r"--d is .*, which is not a valid duration; use 10s"):
        options.duration(text, "--d")


@pytest.mark.parametrize("text", ["65536", "-1", "", "²", "1.5", 1.5, True, None, "9" * 5000])
def test_what_is_no_whole_number_in_bounds_is_refused(text: object) -> None:
    with pytest.raises(InvalidSettingError, match=r"--p is .*whole number from 0 to 65535"):
        options.whole(text, "--p", (0, 65535))


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True", True])
def test_a_switch_is_on_for_what_go_takes_as_true(text: object) -> None:
    assert options.switch(text, "--x") is True


@pytest.mark.parametrize("text", ["yes", "on", "", "tRue", 2, None])
def test_what_is_no_switch_is_refused(text: object) -> None:
    with pytest.raises(InvalidSettingError, match=r"--x is .*: must be true or false"):
        options.switch(text, "--x")


@pytest.mark.parametrize(
    ("given", "items"),
    [
        (["a,b", "c"], ("a", "b", "c")),
        (['"a,b",c'], ("a,b", "c")),
        ([["a,b", "c"]], ("a,b", "c")),
        ([""], ()),
    ],
    ids=["repeated and parted", "quoted as in CSV", "a list of the file", "empty"],
)
def test_a_list_is_read_as_pflag_reads_it(given: list[object], items: tuple[str, ...]) -> None:
    assert options.strings(given, "--f") == items


@pytest.mark.parametrize("given", [['"a'], [{"a": 1}], [["a", 1]], ["a\x1b"]])
def test_what_is_no_list_of_texts_is_refused(given: list[object]) -> None:
    with pytest.raises(InvalidSettingError, match="--f"):
        options.strings(given, "--f")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["a=1,b=2", "c=3"], {"a": "1", "b": "2", "c": "3"}),
        (["a=1,2"], {"a": "1,2"}),
        (['"a=1,2",b=3'], {"a": "1,2", "b": "3"}),
        (["tier=a=b"], {"tier": "a=b"}),
        (["a=1", "a=2"], {"a": "2"}),
        (["a="], {"a": ""}),
        (['{"a": "1", "b": true, "n": 2}'], {"a": "1", "b": "true", "n": "2"}),
        ([{"a": "x"}], {"a": "x"}),
        ([""], {}),
    ],
    ids=[
        "repeated and parted", "one pair keeps its commas", "quoted as in CSV", "equals signs in a value",
        "the later wins", "empty value", "an object as text", "a mapping of the file", "nothing",
    ],
)  # fmt: skip
def test_pairs_are_read_as_pflag_and_viper_read_them(given: list[Any], found: dict[str, str]) -> None:
    assert options.pairs(given, "-X") == found


@pytest.mark.parametrize("given", ["region", "=region", "a=1,b=2,c", '{"a"', '{"a": []}', 7, ["a=1"]])
def test_what_are_no_pairs_is_refused(given: object) -> None:
    with pytest.raises(InvalidSettingError, match="-X"):
        options.pairs([given], "-X")


def test_a_variables_items_are_parted_by_blanks_or_commas() -> None:
    assert options.words(" file:a  file:b,file:c ") == ("file:a", "file:b", "file:c")
