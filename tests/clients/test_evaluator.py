"""An evaluator started with flagd's command line and configuration files, and asked by stock clients."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import urllib.error
import urllib.request
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import CacheType, ResolverType
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext

from tests.clients.asking import served_value
from tests.clients.evaluator import Evaluator, evaluator
from tests.clients.server import until
from tests.clients.up import banner
from tests.clients.upstreams import replace
from tests.registry.signing import Key
from tests.unit.evaluator.http import certificates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from openfeature.client import OpenFeatureClient
    from openfeature.provider import AbstractProvider


@contextmanager
def client(provider: AbstractProvider) -> Iterator[OpenFeatureClient]:
    api.set_provider_and_wait(provider, "evaluator")
    try:
        yield api.get_client("evaluator")
    finally:
        api.clear_providers()


def rpc(port: int, **more: Any) -> FlagdProvider:
    return FlagdProvider(
        host="localhost", port=port, resolver_type=ResolverType.RPC, cache=CacheType.DISABLED, **more
    )


def ready(running: Evaluator) -> dict[str, Any]:
    """The ports, once a flag set is served: before they are open where it was on disk."""
    said: dict[str, dict[str, Any]] = {}

    def complete(event: dict[str, Any]) -> bool:
        said[event["message"]] = event
        return {"listening", "flags served"} <= said.keys()

    running.wait(complete)
    return said["listening"]


def readiness(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    "words",
    [
        ["--uri", "file:flags.json"],
        ["-f=file:flags.json"],
        ["--sources", '[{"uri":"flags.json","provider":"file"}]'],
    ],
    ids=["uri", "letter", "sources"],
)
def test_a_file_is_served_and_its_change_is_seen_by_stock_clients(tmp_path: Path, words: list[str]) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    with evaluator(*words, cwd=tmp_path) as running:
        ports = ready(running)
        ofrep = OFREPProvider(f"http://127.0.0.1:{ports['ofrep']}")
        with client(rpc(ports["grpc"])) as asking, client(ofrep) as also:
            assert asking.get_string_value("banner", "none") == "Welcome"
            replace(tmp_path / "flags.json", banner("party"))
            running.next_event("flags served")
            assert also.get_string_value("banner", "none") == "Hooray"
            assert until(lambda: served_value(ports["ofrep"]) == "Hooray")


def test_an_in_process_provider_gets_its_flags_from_the_sync_port(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        port = ready(running)["sync"]
        provider = FlagdProvider(host="localhost", port=port, resolver_type=ResolverType.IN_PROCESS)
        with client(provider) as asking:
            assert asking.get_string_value("banner", "none") == "Welcome"
            replace(tmp_path / "flags.json", banner("party"))
            assert until(lambda: asking.get_string_value("banner", "none") == "Hooray")


def test_a_file_means_the_same_to_a_provider_in_file_mode_and_to_the_evaluator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "flags.json"
    replace(path, banner("plain", targeting={"if": [{"==": [{"var": "tier"}, "gold"]}, "party"]}))
    monkeypatch.setenv("FLAGD_OFFLINE_POLL_MS", "100")
    provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=str(path))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        port = ready(running)["grpc"]
        for value in ("Hooray", "Welcome"):
            for asked in (provider, rpc(port)):
                with client(asked) as asking:
                    gold = EvaluationContext("user-1", {"tier": "gold"})
                    assert until(lambda: asking.get_string_value("banner", "", gold) == value)  # noqa: B023 - waited for
                    assert asking.get_string_value("banner", "none") == "Welcome"
            replace(path, banner("plain"))


def test_it_starts_without_its_source_and_is_ready_once_that_is_there(tmp_path: Path) -> None:
    with evaluator("-f", "file:late/flags.json", cwd=tmp_path) as running:
        ports = running.next_event("listening")
        assert readiness(ports["management"]) == 412
        replace(tmp_path / "late" / "flags.json", banner("plain"))
        assert until(lambda: readiness(ports["management"]) == 200)
        assert served_value(ports["ofrep"]) == "Welcome"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(tmp_path: Path, number: signal.Signals) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        ready(running)
        assert running.stop(number) == 0
    assert running.log[-1]["message"] == "stopping"


TIERS = json.dumps(
    {
        "flags": {
            "tier": {
                "state": "ENABLED",
                "variants": {"seen": "seen", "unseen": "unseen"},
                "defaultVariant": "unseen",
                "targeting": {"if": [{"==": [{"var": "injectedmetadata"}, "set"]}, "seen"]},
            }
        }
    }
)


def tier(port: int, body: bytes, headers: dict[str, str] | None = None) -> Any:
    """OFREP's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with closing(connection):
        connection.request("POST", "/ofrep/v1/evaluate/flags/tier", body, headers or {})
        return json.load(connection.getresponse())


def test_a_configuration_file_as_the_testbeds_is_obeyed(tmp_path: Path) -> None:
    replace(tmp_path / "flags" / "allFlags.json", TIERS)
    replace(tmp_path / "rawflags" / "selector-flags.json", banner("party"))
    config = {
        "sources": [
            {"uri": "flags/allFlags.json", "provider": "file"},
            {"uri": "rawflags/selector-flags.json", "provider": "file"},
        ],
        "context-value": {"injectedmetadata": "set"},
        "disable-sync-metadata": True,
    }
    (tmp_path / "default.json").write_text(json.dumps(config))
    with evaluator("--config", "./default.json", cwd=tmp_path) as running:
        ports = ready(running)
        assert until(lambda: readiness(ports["management"]) == 200)
        with client(rpc(ports["grpc"])) as asking:
            assert asking.get_string_value("tier", "none") == "seen"
            assert asking.get_string_value("banner", "none") == "Hooray"
        with client(rpc(ports["grpc"], selector="rawflags/selector-flags.json")) as asking:
            assert asking.get_string_value("banner", "none") == "Hooray"
            assert asking.get_string_value("tier", "none") == "none"


def test_the_environment_and_headers_reach_the_context(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", TIERS)
    environ = {
        "FLAGD_URI": "file:flags.json",
        "FLAGD_CONTEXT_FROM_HEADER": '{"X-Meta":"injectedmetadata"}',
        "FLAGD_PROT": "1",
    }
    with evaluator(cwd=tmp_path, environ=environ) as running:
        assert 'did you mean "FLAGD_PORT"' in running.next_event("FLAGD_PROT")["message"]
        port = ready(running)["ofrep"]
        assert tier(port, b"{}", {"X-META": "set"})["value"] == "seen"
        assert tier(port, b"{}")["value"] == "unseen"


def test_the_ssl_configuration_of_the_testbed_is_obeyed(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    leaf = certificates.issue()
    (tmp_path / "a.pem").write_bytes(certificates.certificate_of(leaf))
    (tmp_path / "a.key").write_bytes(certificates.key_of(leaf))
    (tmp_path / "ca.pem").write_bytes(certificates.ca_of())
    config = {
        "server-cert-path": "a.pem",
        "server-key-path": "a.key",
        "sources": [{"uri": "flags.json", "provider": "file"}],
    }
    (tmp_path / "ssl.json").write_text(json.dumps(config))
    with evaluator("--config=ssl.json", cwd=tmp_path) as running:
        ports = ready(running)
        with client(rpc(ports["grpc"], tls=True, cert_path=str(tmp_path / "ca.pem"))) as asking:
            assert asking.get_string_value("banner", "none") == "Welcome"
        assert served_value(ports["ofrep"]) == "Welcome"


def test_a_certificate_that_is_not_there_ends_the_start_with_a_reason(tmp_path: Path) -> None:
    words = ["-f", "file:flags.json", "-c", "a.pem", "-k", "a.key"]
    with evaluator(*words, cwd=tmp_path) as running:
        assert running.process.wait(20) == 2
    assert "a.pem: No such file or directory" in running.log[-1]["message"]


def test_a_restart_without_the_source_serves_the_last_good_flags(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("party"))
    words = ["-f", "file:flags.json", "--state-dir", "state"]
    with evaluator(*words, cwd=tmp_path) as running:
        ready(running)
        assert until(lambda: any((tmp_path / "state").rglob("*")))
        assert running.stop() == 0
    (tmp_path / "flags.json").unlink()
    with evaluator(*words, cwd=tmp_path) as running:
        ports = ready(running)
        assert (served_value(ports["ofrep"]), readiness(ports["management"])) == ("Hooray", 200)


def test_the_first_answer_after_a_restart_comes_from_the_last_good_flags(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("party"))
    words = ["-f", "file:flags.json", "--state-dir", "state"]
    with evaluator(*words, cwd=tmp_path) as running:
        ready(running)
        assert until(lambda: any((tmp_path / "state").rglob("*.flags")))
    (tmp_path / "flags.json").unlink()
    with evaluator(*words, cwd=tmp_path) as running:
        ports = running.next_event("listening")
        assert served_value(ports["ofrep"]) == "Hooray"
        said = [event["message"] for event in running.log]
    assert said.index("flags served") < said.index("listening")


def test_a_second_process_on_a_state_folder_is_refused(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("party"))
    words = ["-f", "file:flags.json", "--state-dir", "state"]
    with evaluator(*words, cwd=tmp_path) as first:
        ports = ready(first)
        with evaluator(*words, cwd=tmp_path) as second:
            assert second.process.wait(20) == 2
        assert readiness(ports["management"]) == 200
    assert "the state folder state is in use by another process" in second.log[-1]["message"]


def test_a_port_that_is_taken_ends_the_start_with_a_reason(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with evaluator("-f", "file:flags.json", "--ofrep-port", str(port), cwd=tmp_path) as running:
            assert running.process.wait(20) == 2
    message = f"port {port} is already in use; choose another with --ofrep-port, or 0 for any free one"
    assert message in running.log[-1]["message"]


def test_a_fifo_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "flags.json")
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        assert running.process.wait(20) == 2
    assert "file:flags.json: it is a FIFO, which cannot be followed" in running.log[-1]["message"]


def test_a_signal_ends_a_process_whose_files_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    source = {"uri": "http://127.0.0.1:9/", "provider": "http", "bearerTokenFile": "token"}
    with evaluator("--sources", json.dumps([source]), cwd=tmp_path) as running:
        writers: list[int] = []

        def is_read() -> bool:
            """Whether a thread of the evaluator reads the FIFO, and so waits for what is never written."""
            with suppress(OSError):
                writers.append(os.open(tmp_path / "token", os.O_WRONLY | os.O_NONBLOCK))
            return bool(writers)

        assert until(is_read)
        assert running.stop() == 0
        os.close(writers[0])


def test_a_second_interrupt_ends_the_process_without_a_traceback(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        ports = ready(running)
        with closing(http.client.HTTPConnection("127.0.0.1", ports["grpc"], timeout=20)) as unanswered:
            unanswered.putrequest("POST", "/flagd.evaluation.v1.Service/ResolveBoolean")
            unanswered.putheader("Content-Length", "100")
            unanswered.endheaders(b"{")
            running.process.send_signal(signal.SIGINT)
            running.next_event("stopping")
            assert running.stop(signal.SIGINT) == -signal.SIGINT
    assert not any("Traceback" in event["message"] for event in running.log)


def test_the_log_names_the_source_that_is_stale_and_says_when_it_is_current_again(tmp_path: Path) -> None:
    replace(tmp_path / "flags.json", banner("plain"))
    with evaluator("-f", "file:flags.json", cwd=tmp_path) as running:
        ready(running)
        (tmp_path / "flags.json").unlink()
        stale = running.next_event("the source is stale")
        replace(tmp_path / "flags.json", banner("plain"))
        again = running.next_event("the source is current again")
    assert (stale["level"], stale["source"]) == ("warning", "flags.json")
    assert (again["level"], again["source"]) == ("info", "flags.json")


def test_a_file_that_nobody_believed_signed_leaves_the_last_good_flags_and_is_told_of(tmp_path: Path) -> None:
    key, file = Key(), tmp_path / "flags.json"
    (tmp_path / "ci.pub").write_bytes(key.public)
    file.write_text(banner("party"))
    (tmp_path / "flags.json.sig").write_text(key.sign(file.read_bytes()))
    source = {"uri": str(file), "provider": "file", "verifyKey": str(tmp_path / "ci.pub")}
    with evaluator("--sources", json.dumps([source]), cwd=tmp_path) as running:
        ports = running.next_event("listening")
        running.next_event("flags served")
        file.write_text(banner("plain"))
        running.next_event("its signature is by no key of")
        assert served_value(ports["ofrep"]) == "Hooray"
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['management']}/metrics") as metrics:
            shown = metrics.read().decode()
        assert any('"unverified"' in line and line.endswith(" 1.0") for line in shown.splitlines())
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['management']}/readyz") as ready:
            assert "its signature is by no key of" in ready.read().decode()
