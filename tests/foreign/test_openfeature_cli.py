"""OpenFeature's CLI reads our manifests, by file and by its API, and generates code that compiles."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from controller.cli import main
from controller.local.local_objects import NAME
from tests.clients.up import up
from tests.foreign.languages import GO, NODE, OPENFEATURE_CLI, node
from tests.go import ROOT, go, program
from tests.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = ROOT.parent / "shared/conformance/import/openfeature-cli/v0/flag-manifest.json"
FLAGS: dict[str, Any] = {
    "new-cart": {
        "variants": {"on": True, "off": False},
        "defaultVariant": "off",
        "metadata": {"description": 'The "new" cart'},
    },
    "max-items": {"variants": {"few": 10}, "defaultVariant": "few", "metadata": {"defaultValue": 12}},
    "ratio": {"variants": {"whole": 1, "half": 0.5}, "defaultVariant": "half"},
    "theme": {"state": "DISABLED", "variants": {"dark": "dark"}, "defaultVariant": "dark"},
    "layout": {"variants": {"wide": {"columns": [2, None]}}, "defaultVariant": "wide"},
    "without-default": {"variants": {"on": True}},
}
KEPT = sorted(FLAGS.keys() - {"without-default"})


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository(tmp_path_factory.mktemp("manifest") / "repository")
    flags = {key: {"state": "ENABLED", **flag} for key, flag in FLAGS.items()}
    repository.commit("flags of every type", flags__json=json.dumps({"flags": flags}))
    return repository


@pytest.fixture(scope="module")
def ports(repository: Repository) -> Iterator[dict[str, int]]:
    with up(repository) as running:
        yield running.ready()


def openfeature(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(program(OPENFEATURE_CLI, "OpenFeature's CLI is not asked")), *words, "--no-input"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def pulled(folder: Path, address: str) -> dict[str, Any]:
    done = openfeature(folder, "pull", "--provider-url", address, "--no-prompt")
    assert done.returncode == 0, done.stdout + done.stderr
    flags: dict[str, Any] = json.loads((folder / "flags.json").read_text(encoding="utf-8"))["flags"]
    return flags


@pytest.fixture
def manifest(repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with the manifest that the verb printed."""
    assert main(["manifest", str(repository.path)]) == 0
    said = capsys.readouterr()
    assert said.err == (
        "flagstaff manifest: left out without-default: it has no default variant; write its code default as "
        "metadata.defaultValue\n"
    )
    (tmp_path / "flags.json").write_text(said.out, encoding="utf-8")
    return tmp_path


@pytest.mark.skipif(not SCHEMA.exists(), reason="the CLI's schema is not here")
def test_the_manifest_keeps_the_cli_s_schema(manifest: Path) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    content = json.loads((manifest / "flags.json").read_text(encoding="utf-8"))
    jsonschema_rs.validator_for(schema).validate(content)
    assert sorted(content["flags"]) == KEPT


@pytest.mark.parametrize(("port", "base"), [("ofrep", ""), ("management", f"/ui/sets/{NAME}")])
def test_pull_gets_what_the_verb_prints(
    port: str, base: str, manifest: Path, ports: dict[str, int], tmp_path: Path
) -> None:
    printed = json.loads((manifest / "flags.json").read_text(encoding="utf-8"))["flags"]
    folder = tmp_path / "pulled"
    folder.mkdir()
    described = {key: {"description": "", **flag} for key, flag in printed.items()}
    assert pulled(folder, f"http://127.0.0.1:{ports[port]}{base}") == described


def test_push_is_refused_and_says_where_to_edit(ports: dict[str, int], manifest: Path) -> None:
    file = manifest / "flags.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["flags"]["new-cart"]["defaultValue"] = True
    file.write_text(json.dumps(content), encoding="utf-8")
    done = openfeature(manifest, "push", "--provider-url", f"http://127.0.0.1:{ports['ofrep']}")
    assert done.returncode != 0
    assert "change the definition in its repository" in done.stdout + done.stderr


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_every_write_gets_403_in_the_api_s_form(method: str, ports: dict[str, int]) -> None:
    address = f"http://127.0.0.1:{ports['ofrep']}/openfeature/v0/manifest/flags/new-cart"
    request = urllib.request.Request(address, b"{}", method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)  # noqa: S310 - of loopback
    error = json.loads(refused.value.read())["error"]
    assert (refused.value.code, error["status"], error["details"]) == (403, 403, [])


def generate(language: str, folder: Path) -> Path:
    done = openfeature(folder, "generate", language, "--output", language)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / language


def test_generated_python_compiles(manifest: Path) -> None:
    generated = generate("python", manifest)
    assert compileall.compile_dir(generated, quiet=1)
    content = (generated / "openfeature.py").read_text(encoding="utf-8")
    assert all(f'"{key}"' in content for key in KEPT)


def test_generated_go_compiles(manifest: Path) -> None:
    generated = generate("go", manifest)
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO.folder / name, generated)
    # The program of that module needs more than the SDK: -mod=mod is not to look for it.
    command = [go(), "build", "-mod=mod", "./..."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(
        command, cwd=generated, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_generated_typescript_compiles(manifest: Path) -> None:
    generated = generate("nodejs", manifest)
    (generated / "node_modules").symlink_to(NODE / "node_modules")
    compiler = NODE / "node_modules" / "typescript" / "bin" / "tsc"
    options = ("--strict", "--noEmit", "--skipLibCheck", "--target", "es2022")
    modules = ("--module", "nodenext", "--moduleResolution", "nodenext")
    command = [str(node() / "node"), str(compiler), *options, *modules, "openfeature.ts"]
    done = subprocess.run(command, cwd=generated, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
