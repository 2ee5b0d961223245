"""Suggests a `--path` where the given one matches no file. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.flagsets.reading.layers import SUFFIXES, PathRefused, select

if TYPE_CHECKING:
    from collections.abc import Collection

    from controller.flagsets.building.compose import Composition
    from evaluator.flags.syntax.problems import Problem


def with_advice(composition: Composition, names: Collection[str]) -> Composition:
    """`composition` with each path that matched nothing explained by `names`, all files of the tree."""
    return replace(
        composition, problems=tuple(_with_advice(problem, names) for problem in composition.problems)
    )


def _with_advice(problem: Problem, names: Collection[str]) -> Problem:
    if problem.code != "path-not-found":
        return problem
    if problem.file == "." and (layers := suggested_layers(names)):
        options = " ".join(f"--path {layer}" for layer in layers)
        message = f"no *.json, *.yaml or *.yml at the top; name the folders, base first, such as: {options}"
        return replace(problem, message=message)
    try:
        select(names, problem.file)
    except PathRefused as refusal:
        return replace(problem, message=refusal.message.removeprefix(f"{problem.file}: "))
    return problem


def suggested_layers(names: Collection[str]) -> list[str]:
    """Folders that look like the layers of one flag set: a `base` with the first of the `overlays` beside
    it, else the first folder that holds definitions.
    """
    visible = (name for name in names if not any(part.startswith(".") for part in name.split("/")))
    folders = sorted({posixpath.dirname(name) for name in visible if "/" in name and name.endswith(SUFFIXES)})
    for base in folders:
        parent, last = posixpath.split(base)
        if last == "base":
            beside = posixpath.join(parent, "overlays") + "/"
            overlays = [folder for folder in folders if folder.startswith(beside)]
            return [base, *overlays[:1]]
    return folders[:1]
