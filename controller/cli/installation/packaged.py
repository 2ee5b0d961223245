"""The manifests of an installation, as the package has them, and kubectl, which builds and applies them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

import controller
from controller.cli.shared.ending import PROBLEM, UNREACHABLE, Exit

if TYPE_CHECKING:
    import argparse

_PACKAGE: Final = Path(controller.__file__).parent
_REGISTRY: Final = "registry.example"
"""The registry that the manifests name, in place of the user's."""


def definitions() -> str:
    """All CustomResourceDefinitions."""
    return "".join(
        f"---\n{file.read_text(encoding='utf-8')}" for file in sorted(_folder("crds").glob("*.yaml"))
    )


def manifests(registry: str | None) -> str:
    """The objects of the usual installation, with images of `registry`, if one is named. Raises Exit."""
    text = kubectl(["kustomize", str(_folder("deploy"))])
    return text if registry is None else text.replace(f"{_REGISTRY}/", f"{registry.rstrip('/')}/")


def _folder(name: str) -> Path:
    # In a checkout they are beside the package.
    folder = _PACKAGE / name
    return folder if folder.is_dir() else _PACKAGE.parent / name


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a stream of manifests."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def kubectl(words: list[str], given: str | None = None) -> str:
    """What kubectl prints. Raises Exit where it is not installed, or fails."""
    program = shutil.which("kubectl")
    if program is None:
        raise Exit("kubectl is not in PATH; it builds and applies the manifests", UNREACHABLE)
    done = subprocess.run(  # noqa: S603 - the user's own kubectl, with words of ours
        [program, *words], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Exit(f"kubectl {words[0]}: {done.stderr.strip()}", PROBLEM)
    return done.stdout


def cluster_words(options: argparse.Namespace) -> list[str]:
    """--kubeconfig and --context, as kubectl takes them."""
    named = {"--kubeconfig": options.kubeconfig, "--context": options.context}
    return [f"{name}={text}" for name, text in named.items() if text]
