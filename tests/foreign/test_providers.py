"""Values, variants, reasons, errors and a live change, by each published provider."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.evaluator import evaluator
from tests.clients.server import until
from tests.clients.up import banner, up
from tests.foreign.asking import open_provider
from tests.foreign.languages import java
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.foreign.asking import Asked

reason = java()
no_java = pytest.mark.skipif(reason is not None, reason=f"Java is not asked: {reason}")
PORTS = {
    "flagd-rpc": "grpc", "flagd-in-process": "sync", "flagd-web": "grpc", "ofrep": "ofrep",
    "ofrep-web": "ofrep",
}  # fmt: skip
PROVIDERS = [
    *(pytest.param(("node", provider), id=f"node-{provider}") for provider in PORTS),
    pytest.param(("java", "flagd-rpc"), id="java-flagd-rpc", marks=no_java),
    pytest.param(("java", "flagd-in-process"), id="java-flagd-in-process", marks=no_java),
]


def flag(variants: dict[str, Any], default: str, **more: Any) -> dict[str, Any]:
    return {"state": "ENABLED", "variants": variants, "defaultVariant": default, **more}


GOLD = {"if": [{"==": [{"var": "tier"}, "gold"]}, "yes", None]}
FLAGS = {
    "boolean": flag({"on": True, "off": False}, "on"),
    "string": flag({"a": "alpha ✓"}, "a"),
    "integer": flag({"ten": 10}, "ten"),
    "float": flag({"half": 0.5}, "half"),
    "object": flag({"o": {"a": [1, {"b": None}], "c": "x"}}, "o"),
    # Asked for by one test alone: flagd's providers give a static answer that they keep to whatever type is
    # asked for next.
    "disabled": {**flag({"on": True}, "on"), "state": "DISABLED"},
    "rate": flag({"none": 0.0, "small": 0.05}, "none"),
    "words": flag({"w": "words"}, "w"),
    "targeted": flag({"yes": "y", "no": "n"}, "no", targeting=GOLD),
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    repository = Repository(tmp_path_factory.mktemp("foreign") / "repository")
    repository.commit("all types", flags__json=json.dumps({"flags": FLAGS}))
    with up(repository) as running:
        yield running.ready()


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest, ports: dict[str, int]) -> Iterator[Asked]:
    language, name = request.param
    with open_provider(language, name, ports[PORTS[name]]) as running:
        yield running


@pytest.mark.parametrize(
    ("kind", "key", "fallback", "value", "variant"),
    [
        ("boolean", "boolean", False, True, "on"),
        ("string", "string", "", "alpha ✓", "a"),
        ("number", "integer", 0, 10, "ten"),
        ("number", "float", 0, 0.5, "half"),
        ("number", "rate", 1, 0, "none"),
        ("object", "object", {}, {"a": [1, {"b": None}], "c": "x"}, "o"),
    ],
)
def test_every_type_is_answered(
    provider: Asked, kind: str, key: str, fallback: Any, value: Any, variant: str
) -> None:
    answer = provider.ask(kind, key, fallback)
    assert (answer["value"], answer["variant"], answer["reason"]) == (value, variant, "STATIC")


@pytest.mark.parametrize(
    ("tier", "value", "variant", "why"),
    [("gold", "y", "yes", "TARGETING_MATCH"), ("tin", "n", "no", "DEFAULT")],
)
def test_targeting_reads_the_clients_context(
    provider: Asked, tier: str, value: str, variant: str, why: str
) -> None:
    answer = provider.ask("string", "targeted", "", targetingKey="user-1", tier=tier)
    assert (answer["value"], answer["variant"], answer["reason"]) == (value, variant, why)


@pytest.mark.parametrize(("key", "error"), [("missing", "FLAG_NOT_FOUND"), ("words", "TYPE_MISMATCH")])
def test_an_error_leaves_the_fallback_and_says_why(provider: Asked, key: str, error: str) -> None:
    answer = provider.ask("boolean", key, fallback=True)
    assert (answer["value"], answer["reason"], answer["errorCode"]) == (True, "ERROR", error)


@pytest.mark.parametrize(
    # Node's provider does not know answers without a value yet (ADR 0006 of the protocol).
    ("name", "error"),
    [("ofrep", "GENERAL"), ("ofrep-web", None), ("flagd-rpc", None), ("flagd-in-process", None)],
)
def test_a_disabled_flag_leaves_the_fallback(ports: dict[str, int], name: str, error: str | None) -> None:
    with open_provider("node", name, ports[PORTS[name]]) as provider:
        for fallback in (True, False):
            answer = provider.ask("boolean", "disabled", fallback)
            assert (answer["value"], answer.get("errorCode")) == (fallback, error)


@pytest.mark.parametrize("published", PROVIDERS)
def test_a_commit_changes_the_answer(tmp_path: Path, published: tuple[str, str]) -> None:
    language, name = published
    repository = Repository(tmp_path / "repository")
    repository.commit("first", flags__json=banner("plain"))
    with up(repository) as running, open_provider(language, name, running.ready()[PORTS[name]]) as provider:
        assert provider.ask("string", "banner", "")["value"] == "Welcome"
        repository.commit("party", flags__json=banner("party"))
        if name != "ofrep":  # OFREP's server provider asks each time and hears of nothing.
            provider.expect("changed")
        assert until(lambda: provider.ask("string", "banner", "")["variant"] == "party")
        assert provider.ask("string", "banner", "")["value"] == "Hooray"


@pytest.mark.parametrize(
    ("name", "option"), [("flagd-rpc", "--socket-path"), ("flagd-in-process", "--sync-socket-path")]
)
def test_a_provider_asks_over_a_unix_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, option: str
) -> None:
    (tmp_path / "flags.json").write_text(banner("plain"))
    with evaluator("-f", "file:flags.json", option, "door.sock", cwd=tmp_path) as running:
        running.next_event("flags served")
        monkeypatch.setenv("FLAGD_SOCKET_PATH", str(tmp_path / "door.sock"))
        with open_provider("node", name, 1) as provider:
            assert provider.ask("string", "banner", "")["value"] == "Welcome"
