"""Variables beside Flux's own substitution (Go, published as a module): one random text after the other.

Not compared, since they differ on purpose: lengths, offsets and patterns of letters beyond ASCII (Flux counts
bytes); `=` where the value is empty (Flux takes the default); `-`, which Flux does not read; defaults that
are not needed, which Flux looks into; arguments that cannot be meant, which Flux passes over; and classes and
backslashes in patterns of an end, which Flux reads from behind; and a beginning or an end that is replaced by
nothing, which Flux leaves.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.flagsets.preparation import Allowance
from controller.flagsets.substitution import Variables
from evaluator.flags.document import read_document
from tests.go import Module, program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FLUX: Final = Module("envsubst", Path(__file__).parent / "envsubst", "Flux's substitution: seconds")
VALUES: Final = {"A": "team/alpha.tar.gz", "B": "b", "C": "", "D": "aXbXa*[x", "E": "Éa", "N": "-2"}
SHORT: Final = st.text("abx.X*[-", max_size=4)
EXAMPLES: Final = int(os.environ.get("FLAGSTAFF_FUZZ_EXAMPLES") or 400)
NUMBERS: Final = st.integers(-20, 20).map(str)
CLASSES: Final = st.sampled_from(["[a-c]", "[^a-c]", "[b-a]", "[x.]", "\\*", "\\[", "[\\]a]"])
GLOBS: Final = st.lists(st.sampled_from([*"abtemX./xgz*?*"]) | CLASSES, min_size=1, max_size=5).map("".join)
ENDS: Final = st.lists(st.sampled_from([*"abX.xgz*?*"]), min_size=1, max_size=5).map("".join)
OLD: Final = st.lists(st.sampled_from([*"abX.*[", "\\/", "tar", "alpha"]), min_size=1, max_size=3).map(
    "".join
)
NEW: Final = st.lists(st.sampled_from([*"abX.*", "\\\\", "$$"]), max_size=3).map("".join)


@pytest.fixture(scope="module")
def flux() -> Iterator[Callable[[str], dict[str, Any]]]:
    """What Flux makes of a text: `made`, or an `error`."""
    envsubst = program(FLUX, "NOT COMPARED WITH FLUX: its substitution cannot be built")
    with subprocess.Popen(
        [envsubst], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def ask(text: str) -> dict[str, Any]:
            asked.write(json.dumps({"text": text, "values": VALUES}) + "\n")
            asked.flush()
            found: dict[str, Any] = json.loads(answers.readline())
            return found

        yield ask
        process.stdin.close()


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    name = draw(st.sampled_from([*"ABCDE", "NONE"]))
    plain = draw(st.sampled_from("ABCD"))
    nested = expressions(depth=depth - 1) if depth else st.nothing()
    forms = [
        st.just(f"${{{name}}}"),
        st.sampled_from(["^", "^^", ",", ",,"]).map(lambda operator: f"${{{name}{operator}}}"),
        st.tuples(st.sampled_from([":=", ":-"]), st.lists(SHORT | nested, max_size=3).map("".join)).map(
            lambda it: f"${{{name}{it[0]}{it[1]}}}"
        ),
        st.tuples(st.sampled_from(["#", "##"]), GLOBS).map(lambda it: f"${{{plain}{it[0]}{it[1]}}}"),
        st.tuples(st.sampled_from(["%", "%%"]), ENDS).map(lambda it: f"${{{plain}{it[0]}{it[1]}}}"),
        st.tuples(st.sampled_from(["/", "//", "/#", "/%"]), OLD | st.just("${B}"), NEW | st.just("${D}"))
        .filter(lambda it: bool(it[2]) or it[0] in {"/", "//"})
        .map(lambda it: f"${{{name}{it[0]}{it[1]}/{it[2]}}}"),
        st.just(f"${{#{plain}}}"),
        (st.integers(0, 20).map(str) | st.just("${N}")).map(lambda start: f"${{{plain}:{start}}}"),
        st.tuples(st.integers(0, 20), NUMBERS).map(lambda it: f"${{{plain}:{it[0]}:{it[1]}}}"),
    ]
    return draw(st.one_of(forms))


TEXTS: Final = st.lists(st.sampled_from(["a", " ", "$$", "$A", "}", "{"]) | expressions(), max_size=4)


def ours(text: str) -> tuple[str, list[str]]:
    """(what becomes of it, the codes of what is wrong)."""
    read = read_document(json.dumps({"v": text}).encode(), file="a.json")
    made = Variables(VALUES)(read, Allowance()).document
    assert isinstance(made.value, dict)
    return str(made.value["v"]), [each.code for each in made.findings]


@settings(max_examples=EXAMPLES)
@given(TEXTS)
def test_a_text_becomes_what_flux_makes_of_it(
    flux: Callable[[str], dict[str, Any]], parts: list[str]
) -> None:
    # What is one expression alone takes a type of JSON.
    text = f"x{''.join(parts)}"
    theirs = flux(text)
    made, codes = ours(text)
    if "error" not in theirs:
        assert (made, codes) == (theirs["made"], [])
    elif codes:
        assert set(codes) == {"unknown-variable"}
        assert "not set" in theirs["error"]
    else:
        # A default that is not needed names what has no value.
        assert ":=" in text or ":-" in text
