"""Fuzzes every target, or those that are named, for FUZZ_SECONDS in all: `make fuzz`, `python -m tests.fuzz
json http2`.

What mutation finds worth keeping goes to `.fuzz/TARGET`, from where the next run goes on. An input that
breaks a target is put into its corpus in the tree: fix the bug, and commit both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.fuzz.test_corpus import CORPUS

KEPT = Path(".fuzz")
SECONDS = 120.0
SLOW_SECONDS, MEGABYTES = 10, 2_048
START_SECONDS = 5.0
"""What a target takes to be imported and instrumented: part of its time, so that all of it ends when it is to
end.
"""
GRACE_SECONDS = 120.0


def main(names: list[str]) -> int:
    """How many targets are broken."""
    if unknown := sorted(set(names) - set(TARGETS)):
        raise SystemExit(f"no target {', '.join(unknown)}: there are {', '.join(TARGETS)}")
    names = names or list(TARGETS)
    workers = min(os.cpu_count() or 1, len(names))
    seconds = float(os.environ.get("FUZZ_SECONDS") or SECONDS) * workers / len(names)
    with ThreadPoolExecutor(workers) as pool:
        broken = [name for name, found in pool.map(partial(fuzz, seconds=seconds), names) if found]
    return len(broken)


def fuzz(name: str, *, seconds: float) -> tuple[str, bool]:
    """One target's name, and whether it is broken."""
    target, kept = TARGETS[name], KEPT / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found, words = Path(folder) / "found", Path(folder) / "words"
        found.mkdir()
        words.write_text("".join(f'"{escape(word)}"\n' for word in target.words), encoding="ascii")
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.worker", name, str(kept), str(CORPUS / name),
             *([f"-dict={words}"] if target.words else []), f"-max_len={target.longest}",
             f"-max_total_time={max(1, round(seconds - START_SECONDS))}", f"-timeout={SLOW_SECONDS}",
             f"-rss_limit_mb={MEGABYTES}", f"-artifact_prefix={found}/", "-print_final_stats=1"],
            capture_output=True, text=True, errors="replace", check=False, timeout=seconds + GRACE_SECONDS,
        )  # fmt: skip
        inputs = [file for file in found.iterdir() if not file.name.startswith("slow-unit")]
        for file in inputs:
            shutil.copy(file, CORPUS / name / file.name[:16])
    report(name, done, [file.name[:16] for file in inputs])
    return name, bool(inputs) or done.returncode != 0


def escape(word: str | bytes) -> str:
    """A word as libFuzzer's dictionaries have it."""
    octets = word.encode() if isinstance(word, str) else word
    return "".join(
        chr(octet) if 32 <= octet < 127 and chr(octet) not in '"\\' else f"\\x{octet:02x}" for octet in octets
    )


def report(name: str, done: subprocess.CompletedProcess[str], inputs: list[str]) -> None:
    """A line, and the end of the story of what broke it."""
    counts = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    runs = counts[-1].rpartition(" ")[2] if counts else "no"
    broken = inputs or done.returncode
    print(f"{name:<14} {runs:>9} runs  {'BROKEN by ' + ', '.join(inputs) if broken else 'ok'}", flush=True)
    if broken:
        print(done.stdout[-3_000:] + done.stderr[-2_000:], flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
