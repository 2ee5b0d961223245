"""Hostile keys, descriptions, authors and commit subjects are shown as text and do nothing."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import urlencode

import pytest

from controller.api.meta import ObjectKey
from controller.delivery.set_state import OverrideLayer
from controller.page.page_source import UNDELIVERED, FlagChange, FlagHistory, LayerPlace, VariantRates
from tests.worlds.page import NOW, FakeSource, ask, flag, shown_set, text

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "</textarea><b>",
    "\u202egnp.exe & \x07",
]


class Tags(HTMLParser):
    """The tags and the attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.links: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in {"href", "src", "action"}:
                self.links.add(str(value).partition(":")[0] if ":" in str(value) else "")


def hostile_source(words: str) -> FakeSource:
    change = FlagChange("1" * 40, f"{words} <a@b>", words, NOW, words)
    shown = shown_set(
        {
            words: flag(
                metadata={"owner": words, "description": words, words: words},
                targeting={"if": [{"==": [{"var": words}, words]}, "on"]},
            )
        },
        revision="main@sha1:" + "1" * 40,
        address=words,
        last_changes={words: change},
        state=replace(
            UNDELIVERED,
            layers=(
                OverrideLayer(
                    ObjectKey("FlagOverride", words, words),
                    words,
                    words,
                    audience=False,
                    until=words,
                    reason=words,
                ),
            ),
        ),
    )
    history = FlagHistory((change,), (LayerPlace(words, 3),), words)
    rates = {words: VariantRates((1,), {words: (2.0,)})}
    return FakeSource([shown], {("flags", words): history}, rates)


def plain_source() -> FakeSource:
    words = "plain"
    return hostile_source(words)


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_add_no_tag_no_attribute_and_no_address(words: str) -> None:
    source, plain = hostile_source(words), plain_source()
    form = urlencode({"targetingKey": words, f"attribute.{words}": words, "others": words})
    for target, body in (("/ui", ""), ("/ui/flag", ""), ("/ui/flag", form), ("/ui/flags", "")):
        query = f"?{urlencode({'key': words, 'q': words, 'set': 'flags'})}"
        usual = f"?{urlencode({'key': 'plain', 'q': 'plain', 'set': 'flags'})}"
        answer, expected = ask(source, target + query, body), ask(plain, target + usual, body)
        assert (answer.status, expected.status) == (200, 200)
        found, known = Tags(answer.body.decode()), Tags(expected.body.decode())
        assert found.seen <= known.seen
        assert found.attributes <= known.attributes
        assert found.links <= {"", "https"}
        assert words.strip() in text(answer)
        assert not any(name.startswith("on") for name in found.attributes | {"x"})


def test_a_secret_is_neither_in_the_list_nor_in_the_flag_nor_in_what_if() -> None:
    definition = flag(variants={"on": "hunter2", "off": ""}, on=True)
    shown = shown_set({"key": definition})
    marked = shown.flag_set.flags["key"]
    marked = type(marked)(
        marked.key,
        marked.state,
        marked.variants,
        marked.default_variant,
        metadata={"flagstaff.dev/secret": True},
    )
    from evaluator.resolving.resolve import compile_flag_set

    flag_set = replace(shown.flag_set, flags={"key": marked})
    source = FakeSource([replace(shown, flag_set=flag_set, served=compile_flag_set(flag_set))])
    for target, body in (("/ui", ""), ("/ui/flag?key=key", ""), ("/ui/flag?key=key", "targetingKey=ada")):
        answer = text(ask(source, target, body))
        assert "hunter2" not in answer
        assert "secret" in answer
