"""Variables in queries of metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.parsing import VARIABLES, QueryError, names_in, render

VALUES = {name: f"<{name}>" for name in VARIABLES}


@pytest.mark.parametrize(
    ("query", "written"),
    [
        ("up", "up"),
        ('x{flag="{{ flag }}"}[{{interval}}]', 'x{flag="<flag>"}[<interval>]'),
        ("{{- arm -}}", "<arm>"),
        ("{{ variables.route }}", "/pay"),
        ('x{a="{"}', 'x{a="{"}'),
    ],
)
def test_variables_are_written_out(query: str, written: str) -> None:
    assert render(query, VALUES, {"route": "/pay"}) == written


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("{{ service }}", r"\{\{ service \}\} is no variable; there are arm,"),
        ("{{ variables.a.b }}", "is no variable"),
        ('{{ printf "x" }}', "is no variable"),
        ("{{ flag", "without the other"),
        ("flag }}", "without the other"),
        ("{{ }}", "is no variable"),
        ("{{ variables.other }}", "has no value; set it in templateVariables"),
    ],
)
def test_what_is_no_variable_is_refused(query: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        render(query, VALUES, {"route": "/pay"})


@given(st.text(alphabet='{}- .abflag"\n', max_size=40))
def test_a_query_is_written_whole_or_refused(query: str) -> None:
    try:
        names = names_in(query)
    except QueryError:
        return
    assert set(names) <= {*VARIABLES, "variables.a", "variables.b", *names}
    if all(name in VARIABLES for name in names):
        assert "{{" not in render(query, dict.fromkeys(VARIABLES, "x"), {})


@given(st.text(max_size=20))
def test_a_value_is_not_read_for_variables(value: str) -> None:
    assert render("a{{ flag }}b", {"flag": value}, {}) == f"a{value}b"
