"""Verbs that write check what they name, wait for the effect, and report the state that was reached."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.cli import VERBS, main
from controller.cli.published import parser_of, verbs_below
from tests.stub_api import StubApi, stub_api
from tests.worlds.delivery import AT_STEP, FIRST, OLD, candidate, flag_set, rollout, source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRITES: Final = {
    "create source git": ("--url", "https://git.example.com/flags.git", "another"),
    "create source bucket": ("--bucket-name", "flags", "--provider", "aws", "another"),
    "create source oci": ("--url", "oci://registry.example.com/flags", "another"),
    "create set": ("--source", "{source}", "another"),
    "suspend": ("rollout", "{rollout}"),
    "resume": ("set", "{paused}"),
    "reconcile": ("set", "{set}"),
    "rollout approve": ("{rollout}",),
    "rollout pause": ("{rollout}",),
    "rollout resume": ("{rollout}", "--candidate", "{candidate}"),
    "rollout promote": ("{rollout}",),
    "rollout abort": ("{rollout}",),
    "rollout retry": ("{rollout}", "--candidate", "{candidate}"),
}
"""The verbs that change objects of a cluster, with what they are given."""
ELSEWHERE: Final = {
    "add", "archive", "delete", "fmt", "rename", "override set", "override end", "install", "uninstall",
    "migrate apply", "promote", "push", "set", "test-alert",
}  # fmt: skip
"""Verbs that write, and have tests of their own: with files, flags, a cluster, a registry or a receiver."""
READS: Final = {
    "admission", "check", "completion", "controller", "describe", "diff", "eval", "evaluator start",
    "evaluator version", "events", "explain", "export", "flags", "fleet", "get", "history", "init",
    "import", "inject", "lint", "logs", "lsp", "manifest", "migrate check", "migrate values", "override list",
    "page", "plan", "proxy", "refs", "rollout plan", "rollout status", "schema", "stale", "stats", "test",
    "trace", "tree", "up", "version", "wait",
}  # fmt: skip
NAMES: Final = {
    "source": "flags", "set": "checkout", "paused": "paused", "rollout": "checkout", "candidate": FIRST[7:19],
}  # fmt: skip
MISSPELT: Final = NAMES | {
    "source": "flgas", "set": "chekout", "paused": "pausde", "rollout": "chekout", "candidate": "0" * 12,
}  # fmt: skip
MAKES_ANYTHING: Final = {"create source git", "create source bucket", "create source oci"}
"""They name nothing that is there already."""


ALL: Final = {name: parser for verb in VERBS for name, parser in verbs_below(parser_of(verb), verb)}


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubApi]:
    """An API server with a source, two flag sets and a rollout at a step that waits for an approval."""
    step = candidate("Paused", FIRST, "banner", **AT_STEP, reason="WaitingForApproval")
    objects = {
        "flagsources/flags": source(),
        "flagsets/checkout": flag_set(),
        "flagsets/paused": flag_set(OLD, OLD, spec={"suspend": True}),
        "flagrollouts/checkout": rollout(step),
    }
    with stub_api(tmp_path) as made:
        made.put("/api/v1/namespaces/shop", {"kind": "Namespace", "metadata": {"name": "shop"}})
        for path, one in objects.items():
            metadata = {"namespace": "shop", "name": path.partition("/")[2], "generation": 1}
            body = {
                "kind": one.key.kind,
                "metadata": metadata,
                "spec": dict(one.spec),
                "status": dict(one.status),
            }
            made.put(f"/apis/flagstaff.dev/v1beta1/namespaces/shop/{path}", body)
        yield made


def run(stub: StubApi, verb: str, names: dict[str, str], *options: str) -> int:
    """Run a verb of WRITES with these names."""
    words = [word.format(**names) for word in WRITES[verb]]
    return main([*verb.split(), *words, *options, "--kubeconfig", str(stub.kubeconfig), "-n", "shop"])


def test_each_verb_either_reads_or_reports_its_effect() -> None:
    assert set(ALL) == {*WRITES, *ELSEWHERE, *READS}


@pytest.mark.parametrize("verb", WRITES)
def test_a_verb_that_writes_has_a_timeout(verb: str) -> None:
    assert "--timeout TIME" in ALL[verb].format_help()


@pytest.mark.parametrize("verb", sorted(WRITES.keys() - MAKES_ANYTHING))
def test_a_verb_checks_what_it_names_before_it_writes(
    verb: str, stub: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(stub, verb, MISSPELT) == 1
    said = capsys.readouterr().err
    assert "did you mean" in said or "there is no candidate" in said
    assert not [method for method, _, _ in stub.asked if method in {"PATCH", "POST", "PUT"}]


@pytest.mark.parametrize("verb", WRITES)
def test_without_a_controller_no_verb_claims_an_effect(
    verb: str, stub: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(stub, verb)
    assert run(stub, verb, NAMES, "--timeout", "0.5s") == 1
    assert "its controller" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "text"),
    [
        ("suspend", "suspended: 444444444444 (banner): step 1/2, 10% of users"),
        ("resume", f"resumed: Applied revision: {OLD[:22]}"),
        ("rollout pause", "paused; step 1/2, 10% of users get the new definition of banner"),
        ("create set", "created: Applied revision: "),
    ],
)
def test_a_verb_reports_the_state_that_was_reached(
    verb: str, text: str, stub: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_controller(stub):
        assert run(stub, verb, NAMES, "--timeout", "20s") == 0
    assert text in capsys.readouterr().out


def prepare(stub: StubApi, verb: str) -> None:
    """Have the rollout in a state that the verb is about."""
    path = "/apis/flagstaff.dev/v1beta1/namespaces/shop/flagrollouts/checkout"
    phases = {"rollout retry": ("Failed", "Aborted"), "rollout resume": ("Paused", "OverrideEnded")}
    if verb in phases:
        phase, reason = phases[verb]
        body = stub.get(path)
        one = candidate(phase, FIRST, "banner", **AT_STEP, reason=reason)
        stub.put(path, {**body, "status": {**body["status"], "candidates": [one]}})


def run_controller(stub: StubApi) -> Any:
    """A controller that acts on each request at once, for as long as the block lasts."""
    return _Controller(stub)


class _Controller:
    def __init__(self, stub: StubApi) -> None:
        self._stub = stub
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        plural = {"flagsets": ("checkout", "paused", "another"), "flagrollouts": ("checkout",)}
        while not self._ended.wait(0.05):
            for kind, names in plural.items():
                for name in names:
                    self._act(f"/apis/flagstaff.dev/v1beta1/namespaces/shop/{kind}/{name}")

    def _act(self, path: str) -> None:
        body = self._stub.get(path)
        if not body:
            return
        asked = body["metadata"].get("annotations", {}).get("reconcile.fluxcd.io/requestedAt")
        status = {**flag_set(OLD, OLD).status, **body.get("status", {})}
        handled = {"lastHandledReconcileAt": asked, "observedGeneration": body["metadata"]["generation"]}
        if handled.items() <= body.get("status", {}).items():
            return
        self._stub.put(path, {**body, "status": {**status, **{k: v for k, v in handled.items() if v}}})
