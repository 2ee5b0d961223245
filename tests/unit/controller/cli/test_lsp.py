"""`flagstaff lsp` as an editor sees it: a client starts the process and talks to it."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pytest_lsp import LanguageClient, make_test_lsp_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CART: Final = """\
$evaluators:
  staff: {"in": [{"var": "team"}, [shop, pay]]}
flags:
  cart:
    state: ENABLED
    variants: {"on": true, "off": false}
    defaultVariant: "off"
    metadata: {owner: shop, expires: "2099-12-31"}
    targeting: {"if": [{"==": [{"var": "tier"}, gold]}, "on", {"fractional": [["on", 10], ["off", 90]]}]}
"""
PAY: Final = """\
flags:
  pay:
    state: ENABLED
    variants: {"x": 1, "y": 2}
    defaultVariant: "x"
    targeting: {"if": [{"flag": ["cart", "on"]}, "y", {"$ref": staff}, "x"]}
"""
TESTS: Final = """\
tests:
  - name: gold
    flag: cart
    context: {tier: gold}
    expect: {variant: "on"}
"""

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Editor:
    """A client with files that are open in it."""

    def __init__(self, client: LanguageClient, root: Path) -> None:
        self.client = client
        self.root = root
        self.version = 0

    def uri(self, file: str) -> str:
        return (self.root / file).as_uri()

    def open(self, file: str, text: str | None = None) -> None:
        """Show a file; with a text that is not saved."""
        written = (self.root / file).read_text() if text is None else text
        item = types.TextDocumentItem(self.uri(file), "yaml", 0, written)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def write(self, file: str, text: str) -> None:
        """Replace the text of an open file."""
        self.version += 1
        changed = types.VersionedTextDocumentIdentifier(self.version, self.uri(file))
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(changed, [whole]))

    def close(self, file: str) -> None:
        """Close a file, and what was not saved is lost."""
        item = types.TextDocumentIdentifier(self.uri(file))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(item))

    async def messages(self, file: str, count: int) -> list[str]:
        """Wait until a file has so many problems."""
        async with asyncio.timeout(60):
            while len(found := self.client.diagnostics.get(self.uri(file), ())) != count:
                await self.client.wait_for_notification(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        return [one.message for one in found]

    def at(self, file: str, text: str) -> dict[str, Any]:
        """The place of `|` in a text, which is what the editor holds from now on."""
        before, _, after = text.partition("|")
        self.write(file, before + after)
        *lines, last = before.split("\n")
        units = len(last.encode("utf-16-le")) // 2
        return {
            "text_document": types.TextDocumentIdentifier(self.uri(file)),
            "position": types.Position(len(lines), units),
        }

    async def completed(self, file: str, text: str) -> dict[str, str]:
        """What may stand at `|`, with what would be written."""
        params = types.CompletionParams(**self.at(file, text))
        found = await self.client.text_document_completion_async(params)
        assert isinstance(found, types.CompletionList)
        edits = {item.label: item.text_edit for item in found.items}
        return {label: edit.new_text for label, edit in edits.items() if isinstance(edit, types.TextEdit)}

    async def hovered(self, file: str, text: str) -> str:
        params = types.HoverParams(**self.at(file, text))
        found = await self.client.text_document_hover_async(params)
        return found.contents.value if found and isinstance(found.contents, types.MarkupContent) else ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for file, text in {"cart.yaml": CART, "pay.yaml": PAY, "cart.flagtest.yaml": TESTS}.items():
        (tmp_path / file).write_text(text)
    return tmp_path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[LanguageClient]:
    """One server for all tests, each of which has a folder of its own in it."""
    client = make_test_lsp_client()
    await client.start_io(sys.executable, "-m", "controller", "lsp")
    answer = await client.initialize_session(types.InitializeParams(types.ClientCapabilities()))
    sync = answer.capabilities.text_document_sync
    # It counts lines otherwise than its library, which applies changes of parts.
    assert isinstance(sync, types.TextDocumentSyncOptions)
    assert sync.change == types.TextDocumentSyncKind.Full
    yield client
    await client.shutdown_session()
    await client.stop()  # type: ignore[no-untyped-call]


@pytest.fixture
def editor(root: Path, client: LanguageClient) -> Editor:
    added = types.WorkspaceFoldersChangeEvent([types.WorkspaceFolder(root.as_uri(), "shop")], [])
    client.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(added))
    return Editor(client, root)


async def test_problems_are_those_of_lint_over_all_files_of_the_folder(editor: Editor) -> None:
    editor.open("pay.yaml", PAY.replace('["cart", "on"]', '["cart", "onn"]'))
    (message,) = await editor.messages("pay.yaml", 1)
    changed(editor.root, "pay.yaml", '"on"]', '"onn"]')
    words = ["-m", "controller", "lint", "--path", str(editor.root)]
    linted = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await linted.communicate()
    assert message in printed.decode()
    editor.write("pay.yaml", PAY)
    await editor.messages("pay.yaml", 0)


async def test_an_unsaved_change_counts_for_the_other_files(editor: Editor) -> None:
    editor.open("cart.yaml")
    editor.write("cart.yaml", CART.replace("  cart:", "  basket:"))
    (message,) = await editor.messages("pay.yaml", 1)
    assert "basket" in message or "cart" in message
    editor.write("cart.yaml", CART)
    await editor.messages("pay.yaml", 0)


async def test_a_problem_is_marked_in_the_units_of_the_editor(editor: Editor) -> None:
    text = 'flags: {"\U0001f600": {state: ENABLED, variants: {a: 1}, defaultVariant: b}}'
    editor.open("smile.yaml", text)
    await editor.messages("smile.yaml", 1)
    (shown,) = editor.client.diagnostics[editor.uri("smile.yaml")]
    start, end = shown.range.start.character, shown.range.end.character
    assert text.encode("utf-16-le")[2 * start : 2 * end].decode("utf-16-le") == "b"
    assert shown.severity == types.DiagnosticSeverity.Error
    assert shown.source == "flagstaff"


async def test_a_broken_file_is_shown_and_the_names_of_the_last_good_one_stay(editor: Editor) -> None:
    editor.open("pay.yaml")
    assert await editor.completed("pay.yaml", PAY.replace('"on"]', "|]")) == {"on": '"on"', "off": '"off"'}
    editor.open("cart.yaml", CART + "  broken: [")
    await editor.messages("cart.yaml", 1)
    assert await editor.completed("pay.yaml", PAY.replace('"on"]', "|]")) == {"on": '"on"', "off": '"off"'}


async def test_tests_and_policies_are_checked_and_completed(editor: Editor) -> None:
    editor.open("cart.flagtest.yaml", TESTS.replace("expect", "expcet"))
    (message,) = await editor.messages("cart.flagtest.yaml", 1)
    assert 'did you mean "expect"?' in message
    assert set(await editor.completed("cart.flagtest.yaml", TESTS.replace('"on"', "|"))) == {"on", "off"}
    policy = "name: owners\naction: Deyn\nvalidations: [{expression: 'true'}]\n"
    editor.open("policies/owners.yaml", policy)
    assert await editor.messages("policies/owners.yaml", 1)
    completed = await editor.completed("policies/owners.yaml", policy.replace("Deyn", "|"))
    assert set(completed) == {"Deny", "Hold", "Warn"}


@pytest.mark.parametrize(
    ("text", "label", "written"),
    [
        ("flags:\n  new:\n    |", "state", "state: "),
        ("flags:\n  new: {|", "defaultVariant", "defaultVariant: "),
        ('flags:\n  new: {"|', "state", '"state": '),
        ("flags:\n  new:\n    sta|: x", "state", "state"),
        ("flags: {new: {targeting: {|", "==", '"==": '),
        ("flags: {new: {targeting: {flag: [|", "cart", "cart"),
        ("flags: {new: {targeting: {flag: ['ca|'", "cart", '"cart"'),
    ],
)
async def test_what_is_completed_fits_where_it_is_written(
    text: str, label: str, written: str, editor: Editor
) -> None:
    editor.open("new.yaml", "")
    assert (await editor.completed("new.yaml", text))[label] == written


async def test_json_is_completed_in_quotes(editor: Editor) -> None:
    editor.open("new.json", "")
    assert (await editor.completed("new.json", '{"flags": {"new": {|'))["state"] == '"state": '
    text = '{"flags": {"new": {"targeting": {"flag": ["ca|'
    assert await editor.completed("new.json", text) == {"cart": '"cart"'}


async def test_a_flag_says_who_gets_what_wherever_it_is_named(editor: Editor) -> None:
    told = (
        "cart: on = true, off = false\nwhere tier is gold: on\nwhere tier is not gold: off 90 %, on 10 %\n"
        "owner: shop\nexpires: 2099-12-31"
    )
    for file, text in {
        "cart.yaml": CART.replace("  cart:", "  ca|rt:"),
        "pay.yaml": PAY.replace('"cart"', '"ca|rt"'),
        "cart.flagtest.yaml": TESTS.replace("flag: cart", "flag: ca|rt"),
    }.items():
        editor.open(file)
        assert await editor.hovered(file, text) == told
    assert "team is shop or pay" in await editor.hovered("pay.yaml", PAY.replace("staff", "sta|ff"))
    assert "if no rule chooses" in await editor.hovered("pay.yaml", PAY.replace("defaultV", "default|V"))
    assert await editor.hovered("pay.yaml", PAY.replace("ENABLED", "ENAB|LED")) == ""


async def test_definitions_and_references_are_found(editor: Editor) -> None:
    editor.open("pay.yaml")
    place = editor.at("pay.yaml", PAY.replace('"cart"', '"ca|rt"'))
    found = await editor.client.text_document_definition_async(types.DefinitionParams(**place))
    assert spelled(editor, found) == ["cart.yaml:4 cart"]
    context = types.ReferenceContext(include_declaration=True)
    params = types.ReferenceParams(context, **place)
    found = await editor.client.text_document_references_async(params)
    assert spelled(editor, found) == ['pay.yaml:6 "cart"', "cart.flagtest.yaml:3 cart", "cart.yaml:4 cart"]


async def test_lines_end_where_editors_end_them(editor: Editor) -> None:
    text = PAY.replace("    state", '    metadata: {ticket: "one\u2028two\x85"}\n    state').replace(
        "\n", "\r\n"
    )
    editor.open("pay.yaml", text)
    place = editor.at("pay.yaml", text.replace('"cart"', '"ca|rt"'))
    found = await editor.client.text_document_hover_async(types.HoverParams(**place))
    assert found is not None
    assert found.range == types.Range(types.Position(6, 33), types.Position(6, 39))


async def test_a_file_is_formatted_as_fmt_does_unless_it_has_an_error(editor: Editor) -> None:
    file = types.TextDocumentIdentifier(editor.uri("odd.yaml"))
    params = types.DocumentFormattingParams(file, types.FormattingOptions(tab_size=2, insert_spaces=True))
    editor.open("odd.yaml", "flags: {a:   {variants: {x: 1},   state: ENABLED, defaultVariant: x}}")
    (edit,) = await editor.client.text_document_formatting_async(params) or ()
    (editor.root / "odd.yaml").write_text(edit.new_text)
    words = ["-m", "controller", "fmt", "--check", "odd.yaml"]
    checked = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=editor.root)
    assert await checked.wait() == 0
    assert edit.range.end == types.Position(1, 0)
    editor.write("odd.yaml", "flags: {a: [")
    assert await editor.client.text_document_formatting_async(params) is None


async def test_an_overlay_is_checked_over_its_base(editor: Editor) -> None:
    for folder, text in {"base": CART, "overlays/prod": "flags: {cart: {defaultVariant: 'on'}}"}.items():
        (editor.root / "shop" / folder).mkdir(parents=True)
        (editor.root / "shop" / folder / "flags.yaml").write_text(text)
    file = "shop/overlays/prod/flags.yaml"
    editor.open(file, "flags: {cart: {defaultVariant: dark}}")
    (message,) = await editor.messages(file, 1)
    assert "dark" in message
    assert set(await editor.completed(file, "flags: {cart: {defaultVariant: |}}")) == {"on", "off"}


async def test_a_base_is_checked_for_each_open_overlay(editor: Editor) -> None:
    for folder, text in {
        "base": CART,
        "overlays/prod": "flags: {cart: {defaultVariant: 'on'}}",
        "overlays/test": "flags: {cart: {defaultVariant: 'off'}}",
    }.items():
        (editor.root / folder).mkdir(parents=True)
        (editor.root / folder / "flags.yaml").write_text(text)
    for folder in ("base", "overlays/prod", "overlays/test"):
        editor.open(f"{folder}/flags.yaml")
    editor.write("base/flags.yaml", CART.replace('{"on": true, "off": false}', "{dark: true}"))
    assert any('"on"' in one for one in await editor.messages("overlays/prod/flags.yaml", 1))
    assert any('"off"' in one for one in await editor.messages("overlays/test/flags.yaml", 1))
    editor.close("base/flags.yaml")
    await editor.messages("overlays/prod/flags.yaml", 0)
    await editor.messages("overlays/test/flags.yaml", 0)


async def test_what_is_closed_has_no_problems_any_more(editor: Editor) -> None:
    editor.open("cart.yaml", CART.replace('defaultVariant: "off"', "defaultVariant: dark"))
    await editor.messages("cart.yaml", 1)
    editor.close("cart.yaml")
    await editor.messages("cart.yaml", 0)


async def test_other_yaml_has_no_problems(editor: Editor) -> None:
    (editor.root / "ci").mkdir()
    (editor.root / "ci" / "bad.yaml").write_text(
        "flags: {a: {state: ENABLED, variants: {a: 1}, defaultVariant: b}}"
    )
    (editor.root / ".github").mkdir()
    editor.open(".github/build.yaml", "jobs: {build: {steps: [}}")
    editor.open(".github/.hidden.yaml", "flags: [")
    editor.open("ci/bad.yaml")
    await editor.messages("ci/bad.yaml", 1)
    for other in ("build.yaml", ".hidden.yaml"):
        assert not editor.client.diagnostics.get(editor.uri(f".github/{other}"))


async def test_a_question_that_was_taken_back_is_answered_as_cancelled(editor: Editor) -> None:
    editor.open("pay.yaml")
    params = types.CompletionParams(**editor.at("pay.yaml", PAY.replace('"on"]', "|]")))
    asked = editor.client.protocol.send_request_async(  # type: ignore[no-untyped-call]
        types.TEXT_DOCUMENT_COMPLETION, params, msg_id="taken-back"
    )
    question = asyncio.ensure_future(asked)
    await asyncio.sleep(0)
    editor.client.cancel_request(types.CancelParams("taken-back"))
    with pytest.raises(JsonRpcException, match="taken-back"):
        await question
    assert "cart" in await editor.hovered("pay.yaml", PAY.replace('"cart"', '"ca|rt"'))


async def test_no_half_typed_text_ends_the_server(editor: Editor) -> None:
    editor.open("cart.yaml")
    for end in range(0, len(CART), 29):
        await editor.completed("cart.yaml", f"{CART[:end]}|")
        await editor.hovered("cart.yaml", f"{CART[:end]}|{CART[end:]}")
    editor.write("cart.yaml", CART)
    await editor.messages("cart.yaml", 0)


def changed(root: Path, file: str, before: str, after: str) -> None:
    """Change a file on disk."""
    (root / file).write_text((root / file).read_text().replace(before, after))


def spelled(editor: Editor, found: Any) -> list[str]:
    """Each place, with what is written there on disk."""
    words = []
    for location in found:
        file = location.uri.removeprefix(editor.root.as_uri() + "/")
        start, end = location.range.start, location.range.end
        line = (editor.root / file).read_text().splitlines()[start.line]
        words.append(f"{file}:{start.line + 1} {line[start.character : end.character]}")
    return words


async def test_an_editor_that_is_gone_ends_the_server() -> None:
    none, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    words = ["-m", "controller", "lsp"]
    server = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=none, stdout=pipe, stderr=pipe
    )
    assert await server.communicate() == (b"", b"")
    assert server.returncode == 0
