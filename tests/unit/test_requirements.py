"""The lock files: what users install, and what developing adds."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "requirements"
TOOLS = {"atheris", "coverage", "hypothesis", "mypy", "pytest", "ruff", "uv"}


def pins(name: str) -> dict[str, str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", text, re.MULTILINE))


def test_the_evaluators_image_has_a_part_of_what_the_controllers_has() -> None:
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        re.split(r"[^a-z0-9-]", line, maxsplit=1)[0]
        for line in [
            *project["dependencies"],
            *chain.from_iterable(project["optional-dependencies"].values()),
        ]
    }
    lines = (FOLDER / "evaluator.in").read_text(encoding="utf-8").splitlines()
    assert {line for line in lines if not line.startswith("#")} < declared
    assert not {"pydantic", "pygit2", "aiohttp", "obstore"} & pins("evaluator.txt").keys()


def test_users_install_object_stores_and_no_tool_of_development() -> None:
    installed = pins("run.txt").keys()
    assert {"kopf", "obstore", "opentelemetry-sdk", "pygit2"} <= installed
    assert not TOOLS & installed


@pytest.mark.parametrize("name", ["build.txt", "controller.txt", "evaluator.txt", "native.txt", "run.txt"])
def test_what_is_tested_is_what_is_installed(name: str) -> None:
    assert pins(name).items() <= pins("dev.txt").items()


@pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.txt")))
def test_lock_files_name_no_registry(name: str) -> None:
    assert not re.search(r"://|--(extra-)?index", (FOLDER / name).read_text(encoding="utf-8"))
