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
    "evaluator.http.cors",
    "evaluator.http.dispatch",
    "evaluator.http.grpc_framing",
    "evaluator.http.h2_connection",
    "evaluator.http.h2_frames",
    "evaluator.http.h2_inbox",
    "evaluator.http.h2_responses",
    "evaluator.http.h2_streams",
    "evaluator.http.hpack",
    "evaluator.http.http1_peer",
    "evaluator.http.http1_reader",
    "evaluator.http.http2_peer",
    "evaluator.http.limits",
    "evaluator.http.listener",
    "evaluator.http.messages",
    "evaluator.http.peer",
    "evaluator.http.scheduler",
    "evaluator.http.stream",
    "evaluator.resolving.compiled_flag",
    "evaluator.server.evaluate_flags",
    "evaluator.server.evaluation",
    "evaluator.server.families",
    "evaluator.server.metrics",
    "evaluator.server.protobuf",
    "evaluator.server.service",
    "evaluator.store.query",
    "evaluator.wire.hub",
    "evaluator.wire.resolve_request",
    "evaluator.wire.servicer",
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
