"""Fuzzes one target in this process, guided by coverage: `python -m tests.fuzz.worker TARGET [libFuzzer's
arguments]`.

Atheris (https://github.com/google/atheris) instruments what is imported here, and libFuzzer mutates.
"""

from __future__ import annotations

import sys

import atheris


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    with atheris.instrument_imports(include=["evaluator", "controller"]):
        from tests.fuzz.targets import TARGETS

    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
