"""What README and docs say of names, against the code that has them."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks import figures, results
from controller.api.manifests_writer import BEGIN, END
from controller.app.settings import (
    OPERATORS,
    OPERATORS_DEBUG,
    AdmissionSettings,
    ControllerSettings,
    ProxySettings,
)
from controller.cli import VERBS, configure, published, shared_resources, whole_parser
from controller.cli.arguments import PASSWORD
from evaluator.http.limits import Limits
from evaluator.server import context
from evaluator.settings import OPTIONS, Settings
from tests.guides import ELSEWHERE, PLAYED, steps

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
)
OF_PROJECT: Final = ("docs/adr/", "docs/architecture.md", "docs/project/")
OF_USERS: Final = [page for page in PAGES if page.startswith("docs/") and not page.startswith(OF_PROJECT)]
"""The pages of the site."""
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE: Final = re.compile(r"[a-z]+(?:-[a-z0-9]+)+")
NAMED_TEST: Final = re.compile(r"`(\w+/[\w/]+\.py)::(test_\w+)`")
CODE_FOLDERS: Final = ("evaluator/flags", "controller/authoring", "controller/flagsets")
NO_CODES: Final = {"e-0", "upper-snake", "utf-8"}
"""Constants that look like a problem's code and are none."""
OF_BENCHMARKS: Final = {"FLAGD_BINARY", "FLAGD_PROXY_BINARY"}
OF_APPLICATIONS: Final = {"FLAGD_HOST", "FLAGD_RESOLVER"}
OF_BUILDS: Final = {"FLAGSTAFF_NATIVE", "FLAGSTAFF_PUBLISHED"}
OF_TESTS: Final = {"FLAGSTAFF_REWRITE"}
OF_VERBS: Final = {PASSWORD}
OF_OTHERS: Final = {"--encrypted-regex", "--server-side", "--unencrypted-regex"}
"""Options of other people's commands that a page names."""
MOST_WORDS: Final = 1200
MOST_WORDS_IN_ALL: Final = 48_550
LONGER: Final = {
    "CONTRIBUTING.md": 2000, "README.md": 1400, "docs/architecture.md": 1930,
    "docs/kinds/flagprovider.md": 1300, "docs/kinds/flagset.md": 1350, "docs/kinds/flagsource.md": 1500,
    "docs/page.md": 1520, "docs/project/benchmarks.md": 4000,
    "docs/rollout-analysis.md": 1650, "docs/up.md": 1830, "docs/verification.md": 1560,
}  # fmt: skip
"""What one reads in parts, and may have more words."""
COLUMNS: Final = 100


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """GitHub's: a heading in lower case, its punctuation gone, dashes for spaces."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_names() -> set[str]:
    """Packages, modules and what they define, with and without the packages that they are in."""
    names = set()
    for file in (*ROOT.glob("controller/**/*.py"), *ROOT.glob("evaluator/**/*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        module = [part for part in parts if part != "__init__"]
        tree = ast.parse(file.read_text(encoding="utf-8"))
        defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        for start in range(len(module)):
            name = ".".join(module[start:])
            names |= {name, *(f"{name}.{member}" for member in defined)}
    return names


def test_the_modules_that_the_architecture_names_exist() -> None:
    named = set(re.findall(r"`([a-z]\w*(?:\.\w+)+|[a-z]+_\w+)`", text("docs/architecture.md")))
    assert named - code_names() == {"pyproject.toml"}


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_leads_somewhere(page: str) -> None:
    lost = []
    for link in LINK.findall(text(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert not lost


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if page != "CHANGELOG.md" and not page.startswith(("docs/reference/", "docs/adr/"))
    ],
)
def test_a_page_is_no_longer_than_a_reader_takes(page: str) -> None:
    # A table of fields, or of resources, is looked up, not read.
    written = text(page)
    tables = (BEGIN, END), *((table.BEGIN, table.END) for table in (published, shared_resources))
    for begin, end in tables:
        before, _, rest = written.partition(begin)
        written = f"{before}{rest.partition(end)[2]}"
    assert len(written.split()) <= LONGER.get(page, MOST_WORDS)


def test_the_pages_that_are_read_are_not_too_many() -> None:
    # Those of kinds and of the reference are looked up.
    read = [page for page in OF_USERS if not page.startswith(("docs/kinds/", "docs/reference/"))]
    assert sum(len(text(page).split()) for page in read) <= MOST_WORDS_IN_ALL


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    named = set(re.findall(r": ([\w/-]+\.md)$", text("mkdocs.yml"), re.MULTILINE))
    assert named == {page.removeprefix("docs/") for page in OF_USERS}, "add the page to mkdocs.yml"


def test_every_page_of_the_site_is_in_the_index() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall(text("docs/README.md"))}
    assert {page.removeprefix("docs/") for page in OF_USERS} - linked == {"README.md"}


def test_the_index_is_one_screen() -> None:
    assert text("docs/README.md").count("\n") <= 50


def test_the_readme_has_at_most_200_lines() -> None:
    assert text("README.md").count("\n") <= 200


def prose(page: str) -> Iterator[str]:
    """The lines of a page without its fenced and indented code and its tables."""
    fenced = False
    for line in text(page).splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("    ", "|")):
            yield line


@pytest.mark.parametrize("page", PAGES)
def test_prose_is_wrapped(page: str) -> None:
    long = [line for line in prose(page) if len(line) > COLUMNS and " " in line.strip(" -*")]
    assert not long


def options(verb: str) -> set[str]:
    parser = argparse.ArgumentParser()
    configure(verb, parser)
    return set(option_strings(parser))


def option_strings(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001 - argparse lists its options nowhere else
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse lists its options nowhere else
            for below in action.choices.values():
                yield from option_strings(below)


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Every `flagstaff VERB …` of the page, with the long options that it is given."""
    joined = re.sub(r"\\\n\s*", "", text(page))
    joined = re.sub(r"\n {6,}(?=\[--)", " ", joined)
    for words in re.findall(r"flagstaff (\w+[^\n`]*)", joined):
        verb = words.split()[0]
        if verb in VERBS:
            yield verb, re.findall(r"(?<![\w-])--[a-z][a-z-]*", words.split(" | ")[0])


@pytest.mark.parametrize("page", PAGES)
def test_every_option_of_a_printed_command_is_an_option_of_its_verb(page: str) -> None:
    wrong = [
        (verb, option) for verb, given in commands(page) for option in given if option not in options(verb)
    ]
    assert not wrong


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_named_alone_is_an_option_of_some_verb(page: str) -> None:
    known = {option for verb in VERBS for option in options(verb)}
    assert set(re.findall(r"`(--[a-z][a-z-]*)[^`]*`", text(page))) <= known | OF_OTHERS


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_is_in_the_documents(verb: str) -> None:
    assert any(verb == named for page in PAGES for named, _ in commands(page))


@pytest.mark.parametrize("option", sorted(options("up") - {"-h", "--help"}))
def test_every_option_of_up_is_on_its_page(option: str) -> None:
    assert f"`{option}`" in text("docs/up.md")


def test_the_newest_version_of_the_changelog_is_the_packages() -> None:
    newest = re.search(r"^## \[(.+?)\]", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == tomllib.loads(text("pyproject.toml"))["project"]["version"]


def test_every_environment_variable_on_a_page_is_read() -> None:
    named = re.compile(r"\b(?:FLAGD|FLAGSTAFF)_[A-Z_]+\b")
    found = {variable for page in PAGES for variable in named.findall(text(page))}
    of_processes = {
        f"FLAGSTAFF_{name.upper()}"
        for settings in (AdmissionSettings, ControllerSettings, ProxySettings)
        for name in settings.model_fields
    }
    known = (
        {option.variable for option in OPTIONS}
        | of_processes
        | OF_BENCHMARKS
        | OF_BUILDS
        | OF_TESTS
        | OF_VERBS
        | OF_APPLICATIONS
        | {*OPERATORS.values(), OPERATORS_DEBUG}
    )
    assert found - known == set()


def strings(folder: str) -> Iterator[str]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_problem_codes_on_the_page_are_those_of_the_code() -> None:
    listed = re.findall(
        r"^\| `([a-z0-9-]+)` \| [EWN](?:/[EWN])* \|", text("docs/reference/problems.md"), re.MULTILINE
    )
    found = {word for folder in CODE_FOLDERS for word in strings(folder) if CODE.fullmatch(word)} - NO_CODES
    assert listed == sorted(found)


def test_every_promise_of_security_names_tests_that_exist() -> None:
    promises = text("docs/reference/security-promises.md").partition("## Promises")[2].partition("\n## ")[0]
    rows = [line for line in promises.splitlines() if line.startswith("|")]
    kept = [line for line in rows if not line.startswith(("| promise |", "|---"))]
    assert kept
    assert [line for line in kept if not NAMED_TEST.search(line)] == []
    named = set(NAMED_TEST.findall(text("docs/reference/security-promises.md")))
    assert {(file, test) for file, test in named if f"def {test}(" not in text(f"tests/{file}")} == set()


def test_the_limits_on_the_page_are_the_defaults() -> None:
    section = text("docs/reference/serving.md").partition("## Limits")[2].partition("\n## ")[0]
    numbers = {int(n.replace(",", "")) for n in re.findall(r"^\| [^|]+ \| ([\d,]+)", section, re.MULTILINE)}
    limits = Limits()
    counted = {limits.body_bytes, limits.streams_per_connection, limits.connections, limits.buffered_bytes}
    timed = {limits.header_seconds, limits.body_seconds, limits.idle_seconds}
    counted |= {limits.header_bytes, limits.resets_per_second, limits.write_buffer_bytes >> 20}
    counted |= {context.MOST_VALUES}
    assert numbers == {*counted, *(int(seconds) for seconds in timed)}


def test_every_option_of_the_evaluator_is_on_its_page_with_its_letter_and_default() -> None:
    page, defaults = text("docs/reference/evaluator.md"), Settings()
    for option in OPTIONS:
        letter = f", `-{option.short}`" if option.short else ""
        row = next(
            (line for line in page.splitlines() if line.startswith(f"| `--{option.name}`{letter} |")), None
        )
        assert row is not None, option.name
        default = getattr(defaults, option.target, None)
        if isinstance(default, int) and not isinstance(default, bool):
            assert f"| {default} |" in row
        assert not option.refusal or option.choices or "| refused |" in row


def test_every_event_of_the_schema_is_on_the_page_with_its_fields() -> None:
    schema = json.loads(text("docs/up-events.schema.json"))
    page = text("docs/up.md")
    for name in [each["$ref"].rpartition("/")[2] for each in schema["oneOf"]]:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        fields = set(schema["definitions"][name]["required"]) - {"event"}
        assert {field for field in fields if f"`{field}`" not in row} == set()


def test_each_printed_command_is_typed_by_a_test_or_says_why_not() -> None:
    typed = {"docs/clusters-by-pull.md", "docs/tutorial.md", "docs/rollouts.md", *PLAYED}
    untyped = [
        step.command
        for page in OF_USERS
        if page not in typed and not page.startswith("docs/guides/")
        for step in steps(text(page))
        if step.command and "\n" not in step.command and not step.command.startswith(tuple(ELSEWHERE))
    ]
    assert untyped == []


def test_each_printed_command_of_flagstaff_is_one_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    parser = whole_parser()
    refused = []
    for page in OF_USERS:
        for line in re.sub(r"\\\n\s*", "", text(page)).splitlines():
            printed = re.match(r"    (?:\$ )?(flagstaff [a-z][^|&#]*)", line)
            # What has brackets or dots is no command, but the form of several; a key is read at once.
            if printed is None or re.search(r"\[|…|/ci\.pub", line):
                continue
            command = re.sub(r"\$\([^)]*\)", "x", printed[1]).partition(" >")[0]
            try:
                parser.parse_args(shlex.split(command)[1:])
            except SystemExit as ended:
                if ended.code:
                    refused.append(f"{page}: {command}: {capsys.readouterr().err}")
    assert refused == []


def test_a_printed_command_can_be_read_by_a_shell() -> None:
    printed = [
        line.strip().removeprefix("$ ")
        for page in PAGES
        for line in re.sub(r"\\\n\s*", "", text(page)).splitlines()
        if line.startswith("    $ ")
    ]
    assert printed
    assert all(shlex.split(line) for line in printed)


def test_ratios_of_benchmarks_are_those_of_the_results_file() -> None:
    measured = json.loads(results.FILE.read_text(encoding="utf-8"))
    page = figures.PAGE.read_text(encoding="utf-8")
    assert page == figures.with_table(page, measured), "run python -m benchmarks.figures"
