"""What verbs do, and say, in an installation without the packages of the extras."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from evaluator.host.build_version import install_command, missing_package
from tests.repositories import Repository

PROJECT: Final = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
OF_EXTRAS: Final = {
    re.split(r"[^a-z0-9-]", requirement, maxsplit=1)[0]
    for requirements in PROJECT["optional-dependencies"].values()
    for requirement in requirements
} - {"flagstaff"}
MODULES: Final = {"grpcio": "grpc", "pyjwt": "jwt", "pydantic-settings": "pydantic_settings"} | {
    name: "opentelemetry" for name in OF_EXTRAS if name.startswith("opentelemetry-")
}
PLAIN: Final = f"""
import sys

ABSENT = {sorted({MODULES.get(name, name) for name in OF_EXTRAS})!r}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from controller.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run_plain(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a verb where no package of an extra is installed."""
    command = [sys.executable, "-c", PLAIN, *words.split()]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    repository = Repository(tmp_path / "shop")
    for variant in ("off", "on"):
        text = (
            "flags:\n"
            "  banner:\n"
            "    state: ENABLED\n"
            "    variants: {'on': true, 'off': false}\n"
            f"    defaultVariant: '{variant}'\n"
        )
        repository.commit(f"Turn the banner {variant}", flags__yaml=text)
    return tmp_path / "shop"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("up . --once", 0, "Turn the banner on"),
        ("up . --worktree --once", 0, "files on disk of shop"),
        ("lint .", 0, "1 valid flag"),
        ("lint . --ref HEAD", 0, "1 valid flag"),
        ("lint -f .", 0, "nothing to check"),
        ("eval . banner", 0, '"variant": "on"'),
        ("diff HEAD~1", 1, "~ banner"),
        ("refs .", 0, "banner: no reference"),
        ("init ../new", 0, "README.md"),
        ("schema", 0, "output-diff"),
        ("lsp --help", 0, "--depends-on"),
        ("manifest .", 0, "banner"),
        ("push --help", 0, "registry"),
        ("up oci://127.0.0.1:1/shop/flags --once", 3, "connection refused"),
    ],
)
def test_a_verb_of_this_machine_does_without_the_extras(
    words: str, code: int, said: str, folder: Path
) -> None:
    done = run_plain(words, folder)
    assert said in done.stdout + done.stderr
    assert done.returncode == code


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        ("up s3://shop/flags --once", "obstore", "buckets"),
        ("up . --verify-key key.asc --once", "pysequoia", "signatures"),
        ("up oci://127.0.0.1:1/shop/flags --verify-key key.pub --once", "cryptography", "signatures"),
        ("evaluator start --uri grpc://127.0.0.1:1", "grpc", "grpc"),
        ("get sets", "kubernetes", "controller"),
        ("lsp", "pygls", "lsp"),
    ],
)
def test_what_needs_an_extra_names_it(words: str, package: str, extra: str, folder: Path) -> None:
    for name in ("key.asc", "key.pub"):
        (folder / name).write_text("-----BEGIN PUBLIC KEY-----\n")
    done = run_plain(words, folder)
    assert done.returncode == 3
    assert f"the package {package}" in done.stderr
    assert done.stderr.endswith(f"install all that this needs: {install_command(extra)}\n")
    assert "Traceback" not in done.stderr


def test_a_module_of_ours_that_is_missing_is_no_package() -> None:
    with pytest.raises(ModuleNotFoundError):
        missing_package(ModuleNotFoundError(name="controller.absent"))
