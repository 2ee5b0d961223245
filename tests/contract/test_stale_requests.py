"""`flagstaff stale` asks a real Prometheus which flags a real evaluator was asked for."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

from controller.cli import main
from tests.clients.server import until
from tests.clients.up import up
from tests.cluster.prometheus import run_prometheus
from tests.repositories import Repository

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FLAG = {"state": "ENABLED", "variants": {"on": True, "off": False}, "defaultVariant": "off"}


def test_a_flag_is_unrequested_until_its_first_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = Repository(tmp_path / "shop")
    repository.commit("two flags", flags__json=json.dumps({"flags": {"asked": FLAG, "forgotten": FLAG}}))
    (tmp_path / "rules.yml").write_text("groups: []\n")

    def unrequested() -> list[str]:
        words = ["stale", str(repository.path), "--prometheus", address, "-o", "json"]
        assert main(words) == 0
        return [flag["key"] for flag in json.loads(capsys.readouterr().out) if flag["requests"] == 0]

    with up(repository) as running:
        ports = running.ready()
        with run_prometheus(tmp_path, tmp_path / "rules.yml", {"shop": [ports["management"]]}) as scraped:
            address = scraped.address
            assert unrequested() == ["asked", "forgotten"]
            url = f"http://127.0.0.1:{ports['ofrep']}/ofrep/v1/evaluate/flags/asked"
            urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST")).close()
            assert until(lambda: unrequested() == ["forgotten"])


def test_what_is_no_prometheus_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "flags.json").write_text(json.dumps({"flags": {"a": FLAG}}))
    with up(tmp_path, "--worktree") as running:
        port = running.ready()["management"]
        assert main(["stale", str(tmp_path), "--prometheus", f"http://127.0.0.1:{port}"]) == 3
    assert "answers 404" in capsys.readouterr().err
    assert main(["stale", str(tmp_path), "--prometheus", "http://ada:s3cret@127.0.0.1:1"]) == 3
    said = capsys.readouterr().err
    assert "127.0.0.1:1 cannot be asked" in said
    assert "s3cret" not in said
