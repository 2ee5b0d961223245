"""The messages of receipts, and that what is generated is what delivery.proto says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evaluator.wire.delivery import MemberText
from evaluator.wire.delivery_pb2 import DESCRIPTOR

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

ROOT = Path(__file__).parents[4]
FOLDER = Path("evaluator/wire")


@pytest.mark.parametrize("name", ["delivery", "evaluation_v1", "evaluation_v2", "sync"])
def test_the_generated_files_are_those_of_the_proto(name: str, tmp_path: Path) -> None:
    proto = FOLDER / f"{name}.proto"
    command = [
        sys.executable, "-m", "grpc_tools.protoc", "-I.",
        f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(proto),
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for generated in (f"{name}_pb2.py", f"{name}_pb2.pyi"):
        assert (tmp_path / FOLDER / generated).read_text() == (ROOT / FOLDER / generated).read_text()


def test_the_service_is_versioned() -> None:
    file: FileDescriptor = DESCRIPTOR
    methods = file.services_by_name["Delivery"].methods
    assert (file.package, [method.name for method in methods]) == (
        "flagstaff.delivery.v1",
        ["Report", "Leave", "Identify"],
    )


def test_a_member_is_read_as_it_was_sent() -> None:
    text = MemberText("i", "shop", "checkout-1", "uid", "node-1", "0.1.0")
    assert MemberText.of(text.message()) == text
