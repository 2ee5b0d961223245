"""Which command a message names to install more of this build."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import MagicMock

import pytest

from evaluator.host import build_version
from evaluator.host.build_version import install_command

WHEEL = "file:///home/ada/dist/flagstaff-0.1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": WHEEL, "archive_info": {}}, f"pip install 'flagstaff[otel] @ {WHEEL}'"),
        (
            {"url": "file:///home/ada/flagstaff", "dir_info": {"editable": True}},
            "pip install -e '/home/ada/flagstaff[otel]'",
        ),
        (
            {"url": "https://git.example/flagstaff", "vcs_info": {"vcs": "git", "commit_id": "5f2a"}},
            "pip install 'flagstaff[otel] @ git+https://git.example/flagstaff@5f2a'",
        ),
        ({}, "pip install 'flagstaff[otel] @ file:///PATH/OF/THE/WHEEL'"),
    ],
    ids=["wheel", "checkout", "repository", "unknown"],
)
def test_a_build_that_is_not_published_is_installed_from_where_it_came(
    origin: dict[str, Any], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = MagicMock()
    installed.read_text.return_value = json.dumps(origin)
    monkeypatch.setattr(build_version, "distribution", lambda _name: installed)
    assert install_command("otel") == command


@pytest.mark.parametrize("published", [True, False])
def test_the_index_is_named_only_for_a_published_build(
    published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_version, "_build", lambda: {"published": published})
    assert (install_command("controller") == "pip install 'flagstaff[controller]'") == published
