"""Compiles the evaluator's serving path to C with mypyc (https://mypyc.readthedocs.io), for a wheel that is
built with FLAGSTAFF_NATIVE=1. `docs/adr/0040-a-compiled-serving-path.md` says why, and which modules.

Needs what requirements/native.txt has, a C compiler, and Python's headers. The wheel has the modules' Python
files as well; a library of the same name comes before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

GROUP: Final = "flagstaff_native"
"""The library with the code of all modules, without mypyc's suffix; the library of each module loads it."""
MODULES: Final = (
    "evaluator.http.h1.body_transport",
    "evaluator.http.h1.head_fields",
    "evaluator.http.h1.http1_peer",
    "evaluator.http.h1.reader",
    "evaluator.http.h2.connection",
    "evaluator.http.h2.control",
    "evaluator.http.h2.events",
    "evaluator.http.h2.frames",
    "evaluator.http.h2.guard",
    "evaluator.http.h2.http2_peer",
    "evaluator.http.h2.inbox",
    "evaluator.http.h2.outbox",
    "evaluator.http.h2.responses",
    "evaluator.http.h2.stream_state",
    "evaluator.http.h2.streams",
    "evaluator.http.h2.transports",
    "evaluator.http.hpack.header_fields",
    "evaluator.http.hpack.hpack",
    "evaluator.http.hpack.huffman",
    "evaluator.http.messages",
    "evaluator.http.rpc.grpc_framing",
    "evaluator.http.server.listener",
    "evaluator.http.server.peer",
    "evaluator.http.server.scheduler",
    "evaluator.http.server.stream",
    "evaluator.server.ofrep.evaluate_flags",
    "evaluator.server.rpc.evaluation",
    "evaluator.server.rpc.protobuf",
    "evaluator.server.selection",
    "evaluator.server.service",
    "evaluator.wire.resolve_request",
)
"""An interpreted class cannot inherit from a compiled one, so subclasses are here too. The ADR says which
modules stay interpreted, and why.
"""
# Libraries count as untyped whether they are installed or not, so that every build has the same code.
_OPTIONS: Final = ("--config-file=", "--no-site-packages", "--ignore-missing-imports")


def compile_modules(folder: Path) -> dict[str, str]:
    """Compile MODULES of the working directory into `folder`; return the place of each library in the wheel
    by its path. Raises SystemExit if mypy finds an error, setuptools' errors if the C compiler fails.
    """
    # An ordinary build does not have these packages.
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    files = [f"{module.replace('.', '/')}.py" for module in MODULES]
    extensions = mypycify(
        [*_OPTIONS, f"--cache-dir={folder / 'mypy'}", *files],
        opt_level="2",
        debug_level="0",
        group_name=GROUP,
        target_dir=str(folder / "c"),
    )
    command = Distribution({"name": "native", "ext_modules": extensions}).get_command_obj("build_ext")
    libraries = folder / "libraries"
    command.build_lib, command.build_temp = str(libraries), str(folder / "objects")
    command.ensure_finalized()
    command.run()
    return {str(path): str(path.relative_to(libraries)) for path in sorted(libraries.rglob("*.so"))}
