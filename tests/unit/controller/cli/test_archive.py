"""`flagstaff archive`: a flag goes, and its key is remembered."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from controller.cli import main
from controller.runtime.clock import now

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BASE = """\
flags: # all of them
  cart: {state: ENABLED, variants: {on: true, off: false}, defaultVariant: off}

  # The old one.
  banner:
    state: ENABLED
    variants: {on: true, off: false}
    defaultVariant: off
    metadata: {owner: web}
metadata: {team: shop}
"""
WITHOUT = """\
flags: # all of them
  cart: {state: ENABLED, variants: {on: true, off: false}, defaultVariant: off}
metadata: {team: shop}
"""
TOP = "flags:\n  banner:\n    defaultVariant: on\n"
NEEDS = """\
flags:
  pay: {state: ENABLED, variants: {a: 1}, targeting: {if: [{flag: [banner, on]}, a]}, defaultVariant: a}
"""
TEST = "tests:\n  - {name: on, flag: banner, expect: {variant: on}}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in (("base", BASE), ("top", TOP)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags.yaml").write_text(text)
    return tmp_path


def run_on_layers(tree: Path, verb: str, *words: str) -> int:
    return main([verb, *words, "--source", str(tree), "--path", "base", "--path", "top"])


def remembered(key: str, owner: str, default: str) -> str:
    date = now().date().isoformat()
    return f'  {key}: {{date: "{date}", owner: {owner}, default: "{default}"}}\n'


def test_a_flag_goes_from_all_layers_and_its_key_is_remembered(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on_layers(tree, "archive", "banner") == 0
    assert (tree / "base" / "flags.yaml").read_text() == WITHOUT
    assert (tree / "top" / "flags.yaml").read_text() == "flags: {}\n"
    archive = (tree / "base" / "archived.yaml").read_text()
    assert archive.startswith("# Flags that are gone.")
    assert archive.endswith(f"flags: {{}}\n$archived:\n{remembered('banner', 'web', 'on')}")
    said = capsys.readouterr()
    assert "- banner: " in said.out
    assert "whether code refers to the flag is unknown" in said.err
    assert "whether somebody asks for the flag is unknown" in said.err


def test_the_next_key_is_remembered_beside_the_first(tree: Path) -> None:
    assert run_on_layers(tree, "archive", "banner") == 0
    (tree / "base" / "archived.yaml").rename(tree / "top" / "old.yaml")
    (tree / "top" / "flags.yaml").unlink()
    (tree / "base" / "flags.yaml").write_text(BASE.replace("banner", "other"))
    assert run_on_layers(tree, "archive", "cart") == 0
    assert (
        (tree / "top" / "old.yaml")
        .read_text()
        .endswith(remembered("banner", "web", "on") + remembered("cart", "shop", "off"))
    )


def test_a_layer_that_is_one_file_remembers_in_it(tree: Path) -> None:
    assert main(["archive", "banner", "--source", str(tree), "--path", "base/flags.yaml"]) == 0
    assert (tree / "base" / "flags.yaml").read_text() == (
        f"{WITHOUT}$archived:\n{remembered('banner', 'web', 'off')}"
    )


def test_no_verb_takes_an_archived_key_again(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_on_layers(tree, "archive", "banner") == 0
    assert run_on_layers(tree, "add", "banner", "--layer", "base", "--file", "base/flags.yaml") == 1
    assert "is archived (base/archived.yaml:4:3)" in capsys.readouterr().err
    (tree / "base" / "flags.yaml").write_text(BASE)
    assert main(["lint", "--path", str(tree / "base"), "--path", str(tree / "top"), "-o", "json"]) == 1
    assert [one["code"] for one in json.loads(capsys.readouterr().out)] == ["archived-key"]


def test_what_uses_the_flag_keeps_it_and_is_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "base" / "needs.yaml").write_text(NEEDS)
    (tree / "base" / "banner.flagtest.yaml").write_text(TEST)
    (tree / "src").mkdir()
    (tree / "src" / "a.py").write_text('client.get_boolean_value("banner", False)\n')
    with prometheus({"namespace": "shop", "job": "web", "feature_flag_key": "banner"}, 12) as url:
        words = ("banner", "--code", str(tree / "src"), "--prometheus", url)
        assert run_on_layers(tree, "archive", *words) == 1
        said = capsys.readouterr().err.splitlines()
    assert said == [
        "base/needs.yaml:2: 'pay' needs it",
        "base/banner.flagtest.yaml:2: a test is about it",
        f'{tree}/src/a.py:1: client.get_boolean_value("banner", False)',
        "requested 12 times in 30 days by shop/web",
        "flagstaff archive: nothing was written, since the flag is in use; end that first, or add --force",
    ]
    assert (tree / "base" / "flags.yaml").read_text() == BASE


def test_by_force_a_flag_goes_that_is_in_use_unless_others_need_it(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "base" / "needs.yaml").write_text(NEEDS)
    assert run_on_layers(tree, "archive", "banner", "--force") == 1
    assert 'needs the flag "banner", which is not defined' in capsys.readouterr().err
    (tree / "base" / "needs.yaml").unlink()
    (tree / "base" / "banner.flagtest.yaml").write_text(TEST)
    assert run_on_layers(tree, "archive", "banner", "--force") == 0
    assert (tree / "base" / "flags.yaml").read_text() == WITHOUT


def test_a_flag_that_nobody_asks_for_goes(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with prometheus({"feature_flag_key": "cart"}, 7) as url:
        assert run_on_layers(tree, "archive", "banner", "--prometheus", url, "--requests-in", "7") == 0
    assert "somebody asks" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("bannr",), 2, "did you mean 'banner'"),
        (("banner", "--layer", "other"), 2, "is not one of --path"),
        (("banner", "--code", "nowhere"), 3, "is no folder"),
        (("banner", "--prometheus", "http://127.0.0.1:1"), 3, "cannot be asked"),
    ],
)
def test_what_cannot_be_archived_or_asked_is_named(
    tree: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    assert run_on_layers(tree, "archive", *words) == code
    assert said in capsys.readouterr().err
    assert (tree / "base" / "flags.yaml").read_text() == BASE


@contextmanager
def prometheus(labels: dict[str, str], count: float) -> Iterator[str]:
    """A server that answers each query with one result."""
    answer = {"status": "success", "data": {"result": [{"metric": labels, "value": [0, str(count)]}]}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
