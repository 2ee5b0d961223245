"""What `flagstaff controller` says before it works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("option", "text"),
    [("--artifact-port", "99999"), ("--workers", "many"), ("--workers", "0"), ("--log-format", "xml")],
)
def test_a_setting_that_cannot_be_used_is_named(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["controller", option, text]) == 2
    assert capsys.readouterr().err.startswith(f"flagstaff controller: {option} is '{text}': must")


def test_a_kubeconfig_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The process' own, which is set for kopf.
    monkeypatch.setenv("KUBECONFIG", "")
    missing = str(tmp_path / "none")
    assert main(["controller", "--kubeconfig", missing]) == 3
    assert missing in capsys.readouterr().err
