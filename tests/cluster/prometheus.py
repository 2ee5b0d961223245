"""Prometheus and promtool of Debian's package."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests import debian
from tests.cluster.patience import within
from tests.cluster.plane import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def folder() -> Path:
    """The folder of both programs; without the package the test is skipped."""
    try:
        return debian.programs("prometheus", "prometheus", "promtool")
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"NO PROMETHEUS SCRAPES: its package cannot be had: {error}")


class Prometheus:
    """A server that scrapes every second."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The instant vector of an expression; a scalar is refused."""
        answer = self._get("query", query=expression)
        assert answer["resultType"] == "vector", expression
        samples: list[dict[str, Any]] = answer["result"]
        return samples

    def targets(self) -> list[str]:
        """The health of each target: `up`, `down` or `unknown`."""
        return [target["health"] for target in self._get("targets")["activeTargets"]]

    def rules(self) -> list[dict[str, Any]]:
        """The rules of all groups, each with its `health`."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - loopback
            return json.load(response)["data"]


@contextlib.contextmanager
def run_prometheus(home: Path, rules: Path, jobs: Mapping[str, list[int]]) -> Iterator[Prometheus]:
    """A Prometheus that scrapes ports of loopback by job, for as long as the block lasts."""
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": job,
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
            }
            for job, ports in jobs.items()
        ],
    }
    (home / "prometheus.yml").write_text(json.dumps(configuration))
    [port] = free_ports(1)
    with (home / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                folder() / "prometheus", f"--config.file={home / 'prometheus.yml'}",
                f"--storage.tsdb.path={home / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
    server = Prometheus(port)
    try:
        within(lambda: _all_up(server), (home / "prometheus.log").read_text)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)


def _all_up(server: Prometheus) -> bool:
    try:
        return set(server.targets()) == {"up"}
    except OSError:
        return False
