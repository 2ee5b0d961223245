"""What an operator asks an evaluator, with the tools that operators have: curl, Prometheus' parser, our own
verbs.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.cli.printing import short
from tests.clients.up import FLAGSTAFF, up
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS = """{"flags": {"banner": {
    "state": "ENABLED", "variants": {"plain": "Welcome", "party": "Hooray"}, "defaultVariant": "plain",
    "targeting": {"if": [{"==": [{"var": "tier"}, "gold"]}, "party", null]}
}}}"""


def curl(*arguments: str) -> str:
    done = subprocess.run(
        ["curl", "-sS", "--fail-with-body", "--max-time", "20", *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def flagstaff(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([FLAGSTAFF, *arguments], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    folder: Path = tmp_path_factory.mktemp("observed")
    repository = Repository(folder / "flags")
    repository.commit(**{"flags.json": FLAGS})
    with up(repository) as running:
        yield running.ready()


@pytest.fixture(scope="module")
def management(ports: dict[str, int]) -> str:
    return f"127.0.0.1:{ports['management']}"


def evaluate(ports: dict[str, int], key: str) -> Any:
    body = '{"context":{"tier":"gold"}}'
    url = f"http://127.0.0.1:{ports['ofrep']}/ofrep/v1/evaluate/flags/{key}"
    done = subprocess.run(["curl", "-sS", "-d", body, url], capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_ready_names_each_source(management: str) -> None:
    found = json.loads(curl(f"{management}/readyz"))
    (source,) = found["sources"]
    assert found["ready"]
    assert (source["digest"], source["stale"]) == (found["digest"], None)


def test_a_scrape_is_prometheus_text_without_a_path_or_a_key_that_was_asked_for(
    ports: dict[str, int], management: str
) -> None:
    assert evaluate(ports, "banner")["value"] == "Hooray"
    evaluate(ports, "no-such-flag")
    text = curl(f"{management}/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (impression,) = families["feature_flag_flagd_impression"].samples
    assert impression.labels["feature_flag_result_variant"] == "party"
    assert families["flagstaff_source_up"].samples[0].value == 1
    assert families["process_resident_memory_bytes"].samples[0].value > 0
    counts = [
        (sample.labels["http_route"], sample.labels["http_response_status_code"], sample.value)
        for sample in families["http_server_request_duration_seconds"].samples
        if sample.name.endswith("_count")
    ]
    route = "/ofrep/v1/evaluate/flags/{key}"
    assert {(route, "200", 1.0), (route, "404", 1.0)} <= set(counts)
    assert "no-such-flag" not in text
    assert "gold" not in text


def test_connections_are_counted_by_port(management: str) -> None:
    text = curl(f"{management}/metrics")
    found = {
        sample.labels["port"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name == "flagstaff_connections"
    }
    assert found == {"grpc": 0, "ofrep": 0, "management": 1, "sync": 0}


def test_flags_are_listed_for_curl_and_for_our_verb(management: str) -> None:
    (flag,) = json.loads(curl(f"{management}/flags"))["flags"]
    code, printed = flagstaff("flags", "--to", management)
    assert code == 0
    row = printed.splitlines()[-1].split()
    assert row[:5] == ["banner", "ENABLED", "string", "plain", "yes"]
    assert short(flag["revision"]) in row


def test_an_explanation_is_the_same_from_the_server_and_from_the_repository(management: str) -> None:
    question = '{"flagKey":"banner","context":{"tier":"gold"}}'
    found = json.loads(curl("-d", question, f"{management}/explain"))
    code, printed = flagstaff("explain", "banner", "--to", management, "--context", "tier=gold")
    assert (code, found["value"]) == (0, "Hooray")
    assert [f"  {step['text']}" for step in found["steps"]] == printed.splitlines()[-4:]


def test_a_flag_that_is_not_there_exits_1(management: str) -> None:
    assert flagstaff("explain", "no-such-flag", "--to", management)[0] == 1
