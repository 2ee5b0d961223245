from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCKERFILE = (Path(__file__).parents[2] / "Dockerfile").read_text(encoding="utf-8")
IMPORTED = re.findall(r'^RUN python -c "(import [^"]+)"$', DOCKERFILE, re.MULTILINE)


def test_each_image_is_left_the_bytecode_of_what_it_imports() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    with_entry = [stage for stage in stages if "ENTRYPOINT" in stage]
    assert [stage.count('RUN python -c "import ') for stage in with_entry] == [1, 1]


@pytest.mark.parametrize("line", IMPORTED, ids=["evaluator", "controller"])
def test_what_an_image_imports_while_it_is_built_can_be_imported(line: str) -> None:
    subprocess.run([sys.executable, "-c", line], check=True)


def test_the_evaluators_image_needs_no_library_of_the_controllers() -> None:
    missing = ["kopf", "pygit2", "pydantic", "kubernetes", "git", "obstore"]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing}))\n{IMPORTED[0]}"
    subprocess.run([sys.executable, "-c", code], check=True)
