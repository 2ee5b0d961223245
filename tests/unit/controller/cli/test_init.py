"""The repository to start from is sound, and nothing is overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.cli import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("environment", ["staging", "production"])
def test_written_repository_can_be_served_and_applied(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "flags"), "--name", "checkout"]) == 0
    assert str(tmp_path / "flags/clusters/checkout.yaml") in capsys.readouterr().out.splitlines()
    monkeypatch.chdir(tmp_path / "flags")
    layers = ["--path", "flags/base", "--path", f"flags/overlays/{environment}"]
    assert main(["lint", *layers]) == 0
    assert main(["fmt", "--check"]) == 0
    assert main(["lint", "-f", "clusters"]) == 0
    assert capsys.readouterr().out.endswith("3 valid manifests\n")
    assert main(["up", ".", "--worktree", "--once", *layers]) == 0


def test_existing_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text("mine")
    assert main(["init", str(tmp_path)]) == 1
    assert "README.md is there already; nothing was written" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]


def test_name_that_no_object_may_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path), "--name", "My Shop"]) == 2
    assert "use lower-case letters, digits and -" in capsys.readouterr().err
