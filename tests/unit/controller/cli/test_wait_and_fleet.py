"""`flagstaff wait` and `flagstaff fleet` without a cluster: usage, and tables."""

from __future__ import annotations

import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.api.meta import Resource
from controller.cli import main
from controller.cli.clusters import run_on_cluster
from controller.cli.fleet import cluster_table, proxy_table

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGSTAFF = str(Path(sys.executable).parent / "flagstaff")
REVISION = "main@sha1:" + "a" * 40
MEMBER = {
    "name": "shop/a", "node": "n1", "version": "0.1.0", "verified": False, "revision": "r1", "digest": "d",
    "silent": False, "lagging": True, "since": "12:00",
}  # fmt: skip
FLEET = [
    {
        "namespace": "shop",
        "name": "flags",
        "served": 1,
        "total": 3,
        "delivered": 2,
        "members": [MEMBER, {**MEMBER, "name": "b\x1b[2J", "silent": True}],
    }
]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ffc", "--revision", REVISION], "name one object: ffc NAME, or ffc/NAME"),
        (["pod/a", "--revision", REVISION], "there is no kind 'pod'"),
        (
            ["alert/a", "--revision", REVISION],
            "wait for a FeatureFlagConfiguration, a FlagSet or a FlagRollout",
        ),
        (["ffc/a", "--revision", "main"], "write main@sha1:…, a commit"),
        (["ffc/a", "--revision", "abc12"], "its first 7 characters"),
        (["ffc/a", "--revision", REVISION, "--percent", "0"], "--percent"),
        (["ffc/a", "--revision", REVISION, "--percent", "101"], "--percent"),
    ],
)
def test_wrong_usage_says_what_to_write(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wait", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["wait", "ffc/a", "--revision", REVISION], ["fleet"], ["events"], ["test-alert", "provider/a"]]
)
def test_without_a_cluster_it_ends_with_3(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--kubeconfig", str(tmp_path / "none")]) == 3
    assert "cannot find a cluster" in capsys.readouterr().err


def test_a_reader_of_the_output_that_has_gone_is_no_missing_cluster() -> None:
    async def print_to_nobody() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_on_cluster(print_to_nobody)


def test_each_flag_set_has_a_line_and_each_laggard_one_beneath() -> None:
    status: dict[str, Any] = {
        "revision": "r2", "served": "1/2", "total": 2, "delivered": 3, "servedWithin": "1.2s",
        "laggards": [{"name": "shop/a", "serves": "r1", "since": "12:00"}],
    }  # fmt: skip
    bodies = [
        {"metadata": {"namespace": "shop", "name": "flags"}, "status": status},
        {"metadata": {"namespace": "shop", "name": "new"}},
    ]
    configurations = [Resource.of({"kind": "FeatureFlagConfiguration", **each}) for each in bodies]
    assert cluster_table([("", configurations)]).splitlines() == [
        "FLAG SET    REVISION  SERVED  DELIVERED  WITHIN",
        "shop/flags  r2        1/2     3          1.2s",
        "  shop/a: serves r1 (behind since 12:00)",
        "shop/new              -       0",
    ]
    assert cluster_table([("eu", configurations), ("us", configurations[:1])]).splitlines() == [
        "CLUSTER  FLAG SET    REVISION  SERVED  DELIVERED  WITHIN",
        "eu       shop/flags  r2        1/2     3          1.2s",
        "  shop/a: serves r1 (behind since 12:00)",
        "eu       shop/new              -       0",
        "us       shop/flags  r2        1/2     3          1.2s",
        "  shop/a: serves r1 (behind since 12:00)",
    ]


def test_a_fleet_without_flag_sets_and_one_without_evaluators_are_reported() -> None:
    assert (cluster_table([]), proxy_table([])) == ("no flag sets\n", "no evaluators\n")


def test_a_proxy_s_evaluators_have_a_line_each_and_cannot_move_the_cursor() -> None:
    *lines, summary = proxy_table(FLEET).splitlines()
    assert summary == "  1 of 3 evaluators serve what is delivered; 2 streams of others"
    assert [line.split("  ")[-2] for line in lines[1:]] == ["behind", "silent"]
    assert "shop/a (claimed)" in lines[1]
    assert "\x1b" not in lines[2]


def test_the_line_of_an_evaluator_that_is_not_sent_the_set_any_more_says_why() -> None:
    member = {"name": "shop/a", "lagging": True, "reason": "OrderNotGranted", "since": "12:00"}
    table = proxy_table([{"namespace": "shop", "name": "flags", "members": [member]}])
    assert "OrderNotGranted  12:00" in table


@pytest.fixture
def proxy() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"flagSets": FLEET}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Not to the test's output."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_proxy_is_asked(proxy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--to", proxy]) == 0
    assert capsys.readouterr().out == proxy_table(FLEET)
    assert main(["fleet", "--to", proxy, "-n", "another"]) == 0
    assert capsys.readouterr().out == "no evaluators\n"
    assert main(["fleet", "--to", proxy, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == FLEET


def test_a_proxy_that_is_not_there_ends_it_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--to", "127.0.0.1:1"]) == 3
    message = "cannot reach a proxy or `flagstaff up` at 127.0.0.1:1: Connection refused; is its"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["wait", "ffc/a", "--revision", REVISION, "--timeout", "1s"], ["fleet"]], ids=["wait", "fleet"]
)
def test_a_cluster_that_does_not_answer_ends_it_with_3_and_names_its_address(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    path = tmp_path / "config"
    path.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"})
    )
    assert main([*words, "--kubeconfig", str(path)]) == 3
    assert "the cluster cannot be read: http://127.0.0.1:1: connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["wait", "ffc/a", "--revision", REVISION], ["fleet"]], ids=["wait", "fleet"]
)
def test_without_any_cluster_one_line_says_what_to_set(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client reads the variable once, when it is imported.
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    done = subprocess.run([FLAGSTAFF, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"flagstaff {words[0]}: cannot find a cluster: no kubeconfig found ({tmp_path / 'none'}), "
        "and not running in a pod; set KUBECONFIG or --kubeconfig"
    ]


def test_ctrl_c_ends_a_wait_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        path.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {}}],
                    "current-context": "c",
                }
            )
        )
        command = [FLAGSTAFF, "wait", "ffc/a", "--revision", REVISION, "--kubeconfig", str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            # It listens to nobody before it asks the cluster.
            silent.accept()[0].close()
            process.send_signal(signal.SIGINT)
            _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in output
