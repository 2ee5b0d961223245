"""Runs a page of the documents as its reader would: writes its files, and types its commands in one shell.

In an indented block, `$ command` is a command, and the lines below it what it prints: `…` stands for any text
of a line, and alone in a line for any lines. A command below which nothing stands must succeed. A block
without `$` is what the server of this page prints meanwhile. “Save this as `path`:” and “Append this to
`path`:” write the fenced block that follows.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.repositories import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

ROOT: Final = Path(__file__).parents[1]
PATIENCE: Final = 20.0
SERVERS: Final = ("flagstaff up ", "flagstaff evaluator start ")
READERS: Final = ("curl ", "kubectl get ", "python ", "flagstaff ")
"""Commands that may be asked again until they print what is expected: a change takes a moment to arrive."""
_FILE: Final = re.compile(r"(Save this as|Append this to) `([^`]+)`")
_PORTS: Final = ("--port 8013", "--management-port 8014", "--sync-port 8015", "--ofrep-port 8016")
_DONE: Final = "\x1edone"

_EXAMPLE: Final = (
    f"mkdir -p ~/src && cp -r {ROOT}/examples/gitops-repo ~/src/flags && cd ~/src/flags && "
    "git init -q -b main && git add . && git commit -q -m 'Flags of the checkout'"
)
_SERVED: Final = (
    f"{_EXAMPLE}\nflagstaff up . --path flags/base --path flags/overlays/production {' '.join(_PORTS)} "
    ">/dev/null 2>&1 & until curl -sf localhost:8014/readyz >/dev/null; do sleep 0.1; done"
)
_COMPARED: Final = f"""{_EXAMPLE}
git update-ref refs/remotes/origin/main HEAD
sed -i 's/defaultVariant: plain/defaultVariant: christmas/' flags/base/checkout.yaml
git commit -q -a -m 'Christmas banner'
cp {ROOT}/examples/injection/deployment.yaml .
mkdir clusters/production && cat >clusters/production/flags.yaml <<'END'
apiVersion: flagstaff.dev/v1beta1
kind: FlagSource
metadata: {{name: flags}}
spec:
  interval: 1m
  git:
    url: https://git.example.com/shop/flags.git
    ref: {{semver: newest, brnach: main}}
END"""
_OPERATORS: Final = """cat >values.yaml <<'END'
sidecarConfiguration: {image: {repository: ghcr.io/open-feature/flagd, tag: v0.15.4}}
flagdProxyConfiguration: {port: 9015}
END
mkdir manifests && cat >manifests/flags.yaml <<'END'
apiVersion: core.openfeature.dev/v1beta1
kind: FeatureFlagSource
metadata: {name: flags, namespace: shop}
spec:
  sources:
    - {provider: file, source: flags}
END"""
_WITH_CODE: Final = f"""{_EXAMPLE}
mkdir -p src/shop && cat >src/shop/cart.py <<'END'
NEW_CHECKOUT = "new-checkout"

def pay(client):
    return client.get_boolean_value(NEW_CHECKOUT, False)
END"""
_IMPORTED: Final = """cat >flags.json <<'END'
{"items": [{"key": "new-checkout", "variations": [{"value": true}, {"value": false}], "environments":
 {"production": {"on": true, "offVariation": 1, "fallthrough": {"variation": 0}}}}]}
END
cat >production.json <<'END'
{"features": [{"name": "new-checkout"}], "featureStrategies": [],
 "featureEnvironments": [{"featureName": "new-checkout", "environment": "production", "enabled": true}]}
END
sed s/production/test/ production.json >test.json
cat >calls.jsonl <<'END'
{"flag": "new-checkout", "environment": "production", "context": {"targetingKey": "u1"}, "value": true}
END"""
PLAYED: Final = {
    "docs/authoring.md": _EXAMPLE,
    "docs/coming-from-openfeature-operator.md": _OPERATORS,
    "docs/cli-definitions.md": _COMPARED,
    "docs/flag-life.md": _WITH_CODE,
    "docs/importing.md": _IMPORTED,
    "docs/observability.md": _SERVED,
    "docs/page.md": _EXAMPLE,
    "docs/policies.md": _EXAMPLE,
    "docs/reference/evaluator.md": "echo '{\"flags\": {}}' >flags.json",
    "docs/reference/serving.md": _SERVED,
    "docs/up.md": _EXAMPLE,
    "docs/writing-flags.md": _EXAMPLE,
}
"""Pages beside the guides whose commands are typed, and what is typed before."""
ELSEWHERE: Final = {
    "kubectl ": "asks a cluster for objects that the page only names; the guides on a cluster type such",
    "flagstaff up s3://": "needs a store",
    "flagstaff push ": "needs a registry",
    "flagstaff promote ": "needs a registry",
    "flagstaff migrate apply ": "needs a cluster of OpenFeature Operator",
    "flagstaff reconcile ": "asks a cluster",
    "flagstaff events ": "asks a cluster",
    "flagstaff test-alert ": "needs a service that receives alerts",
    "curl -s localhost:8016/track": "needs a rollout in progress",
    "curl -s localhost:8016/ofrep/v1/evaluate/flags/new-checkout": "needs a rollout in progress",
    "flagstaff lint -f checkout.yaml": "is refused with the words of the API server above it",
}
"""How printed commands begin that no test types from their page, and why."""


class Step(NamedTuple):
    """A command, a file (`command` writes it) or, without a command, lines of the server."""

    line: int
    command: str
    expected: list[str]


def steps(page: str) -> Iterator[Step]:
    """Those of a page, in order."""
    lines = page.splitlines()
    number, paragraph = 0, ""
    while number < len(lines):
        start, line = number, lines[number]
        number += 1
        if line.startswith("```"):
            end = lines.index("```", number)
            if target := _FILE.search(paragraph):
                yield Step(start + 1, write_command(target[1], target[2], lines[number:end]), [])
            number, paragraph = end + 1, ""
        elif line.startswith("    "):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number]):
                number += 1
            yield from in_block(start + 1, [each[4:] for each in lines[start:number]])
        elif line:
            paragraph += f"{line} "
        elif number < len(lines) and not lines[number].startswith("```"):
            paragraph = ""


def in_block(start: int, lines: list[str]) -> Iterator[Step]:
    """The commands of an indented block, each with what it prints."""
    while lines and not lines[-1]:
        lines.pop()
    heads = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if not heads:
        yield Step(start, "", lines)
    for head, end in pairwise([*heads, len(lines)]):
        command, first = lines[head][2:], head + 1
        while command.endswith("\\"):
            command, first = f"{command[:-1]}{lines[first]}", first + 1
        yield Step(start + head, command, [line for line in lines[first:end] if line])


def write_command(verb: str, path: str, lines: list[str]) -> str:
    """The command that writes a file."""
    into = ">" if verb.startswith("Save") else ">>"
    return f"mkdir -p $(dirname {path}) && cat {into} {path} <<'END'\n" + "\n".join(lines) + "\nEND"


def pattern(expected: list[str]) -> re.Pattern[str]:
    """What must be printed: digests, times and the width of columns differ from run to run."""
    whole = ""
    for line in expected:
        if line.strip() == "…":
            whole += r"(?:.*\n)*"
            continue
        text = ".*".join(re.escape(part) for part in re.sub(" +", " ", line.strip()).split("…"))
        text = re.sub(r"(?<![0-9a-z])(?=[a-f]*\d)[0-9a-f]{7,64}(?![0-9a-z])", "[0-9a-f]{7,64}", text)
        text = re.sub(r"\d+\\\.\d\ds", r"\\d+\\.\\d\\ds", text)
        text = re.sub(r"\d{4}\\-\d\d\\-\d\dT[\d:]+Z", r"[\\dT:-]+Z", text)
        whole += f"{text}\n"
    return re.compile(whole)


class Guide:
    """One shell in a folder, with what a guide starts in it."""

    def __init__(self, folder: Path, words: Mapping[str, str], environ: Mapping[str, str]) -> None:
        """`words` are replaced in all that is typed and expected."""
        self._words = words
        self._log = folder / ".server.log"
        path = f"{Path(sys.executable).parent}:{environ.get('PATH', os.environ['PATH'])}"
        self._shell = subprocess.Popen(
            ["bash"], cwd=folder, text=True, start_new_session=True,
            env={**ENVIRONMENT, "HOME": str(folder), "NO_COLOR": "1", **environ, "PATH": path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, step: Step) -> str:
        """Do what a step says; empty, or what went wrong."""
        if not step.command:
            return self._until(step, self._log.read_text, whole=False)
        if step.command.startswith(SERVERS) and "--once" not in step.command:
            words = " ".join((step.command, *_PORTS))
            self._type(f"[ -z $server ] || {{ kill $server; wait $server; }}\n: >{self._log}")
            self._type(f"{words} >{self._log} 2>&1 & server=$!")
            return self._until(step, self._log.read_text, whole=False)
        if step.command.startswith(READERS) and "&&" not in step.command and step.expected:
            return self._until(step, lambda: self._type(step.command)[1], whole=True)
        code, printed = self._type(step.command)
        if code and not step.expected:
            return f"it ended with {code} and printed\n{printed}"
        return self._until(step, lambda: printed, whole=True, patience=0) if step.expected else ""

    def _type(self, command: str) -> tuple[int, str]:
        """Exit code and output of a command."""
        shell = self._shell
        assert shell.stdin is not None
        assert shell.stdout is not None
        if command.startswith(("flagstaff flags", "flagstaff explain")) and "--to" not in command:
            command += " --to 127.0.0.1:8014"
        shell.stdin.write(f"{self._replace(command)}\necho {_DONE} $?\n")
        shell.stdin.flush()
        printed = ""
        for line in shell.stdout:
            before, done, code = line.partition(_DONE)
            printed += before
            if done:
                return int(code), printed
        raise AssertionError(f"the shell ended after {command!r}: {printed}")

    def _replace(self, text: str) -> str:
        for old, new in self._words.items():
            text = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, text)
        return text

    def _until(self, step: Step, read: Callable[[], str], *, whole: bool, patience: float = PATIENCE) -> str:
        wanted = pattern([self._replace(line) for line in step.expected])
        until = time.monotonic() + patience
        while True:
            printed = read()
            # A busy machine is not the guide's matter.
            kept = (line for line in printed.splitlines() if line and "evaluator.host.loop_lag" not in line)
            lines = "".join(re.sub(" +", " ", line.strip()) + "\n" for line in kept)
            if wanted.fullmatch(lines) if whole else wanted.search(lines):
                return ""
            if time.monotonic() > until:
                return f"it printed\n{printed}"
            time.sleep(0.2)

    def end(self) -> None:
        """Stop the shell and all servers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.communicate(timeout=PATIENCE)


def free_ports() -> dict[str, str]:
    """A free port for each of flagd's."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in _PORTS]
        return {port[-4:]: str(each.getsockname()[1]) for port, each in zip(_PORTS, held, strict=True)}


def play(
    page: str,
    folder: Path,
    *,
    prologue: str = "",
    end: str = "",
    commands_only: bool = False,
    elsewhere: Collection[str] = tuple(ELSEWHERE),
    **given: Mapping[str, str],
) -> None:
    """Run the page, up to the heading `end` if there is one; fails at the first step that is not as written.
    `prologue` is typed first; `words` are further replacements, `environ` further variables. `commands_only`:
    blocks without a command are not what a server prints. Commands that begin as one of `elsewhere` are
    passed over.
    """
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"\n{end}\n" if end else "\0")[0]
    found = [
        step
        for step in steps(text)
        if (step.command or not commands_only) and not step.command.startswith(tuple(elsewhere))
    ]
    assert any(step.command for step in found), f"{page} has no commands"
    guide = Guide(folder, {**free_ports(), **given.get("words", {})}, given.get("environ", {}))
    try:
        for step in [Step(0, prologue or "true", []), *found]:
            wrong = guide.run(step)
            expected = "\n".join(step.expected)
            assert not wrong, f"{page}:{step.line}: $ {step.command}\nexpected\n{expected}\n{wrong}"
    finally:
        guide.end()
