"""The ratios that docs/project/benchmarks.md states, computed from the results file.

python -m benchmarks.figures

writes the page's table anew, between its two markers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.results import DATES, FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE = Path(__file__).parents[1] / "docs" / "project" / "benchmarks.md"
BEGIN, END = "<!-- ratios: begin -->", "<!-- ratios: end -->"
Rows = list[dict[str, Any]]


class Figure(NamedTuple):
    """A row of the table."""

    part: str
    """The letter of the benchmark."""
    result: str
    """The name in the results file."""
    measure: str
    ratios: Callable[[Rows], Iterable[float]]


def column(name: str, **wanted: object) -> Callable[[Rows], list[float]]:
    """A column that holds ratios, of the rows that have the `wanted` values."""
    return lambda rows: [row[name] for row in rows if name in row and wanted.items() <= row.items()]


def part_of(name: str, above: int, below: int) -> Callable[[Rows], list[float]]:
    """A column's value in row `above`, as a part of that in row `below`."""
    return lambda rows: [rows[above][name] / rows[below][name]]


def beside_flux(*names: str) -> Callable[[Rows], list[float]]:
    """The columns of ours as parts of source-controller's."""
    return lambda rows: [next(row for row in rows if row["of"] == "ratio")[name] for name in names]


_COMPILED = "compiled times pure"
_POKE, _SOURCES = "poke to artifact Ready, a repository of one file", "300 sources"
_STREAMS = "streams: a change for clients with and without gzip"
FIGURES = (
    Figure("a", "evaluation, bucketing v2", "speed of a static, targeting and fractional flag to the Python "
           "core 1.0.0, v2", column("times faster")),
    Figure("a", "evaluation, bucketing v3", "the same to the Python core 2.0.0, v3", column("times faster")),
    Figure("b", "over the wire", "requests a CPU second, compiled to pure Python: each load in the order of "
           "the method", column(_COMPILED)),
    Figure("c", "commit to value at a subscribed client, local repository",
           "p50 of a commit to 1,000 flags to that of a commit to 10", part_of("p50 ms", 1, 0)),
    Figure("e", "10,000 flags read, served and delivered to 100 event streams",
           "longest pause, swapping in a thread to swapping on the loop", part_of("longest pause ms", 2, 0)),
    Figure("f", _STREAMS, "bytes of a change with gzip to without: 21, 1,000, 10,000 flags",
           lambda rows: _pairs(rows, "MB a change")),
    Figure("f", _STREAMS, "CPU of a change with gzip to without: the same",
           lambda rows: _pairs(rows, "CPU s a change")),
    Figure("g", "2,000 gRPC calls a second beside a hostile peer",
           "p99 of calls to the evaluator to that at rest, 14 hostile clients: least, median, most",
           lambda rows: _spread(rows[1:], "p99 to that at rest")),
    Figure("g", "500 fetches of a set from the proxy a second beside a hostile peer",
           "p99 of fetches from the proxy to that at rest, 12 hostile clients: least, median, most",
           lambda rows: _spread(rows[1:], "p99 to that at rest")),
    Figure("h", "all of 10,000 flags asked for",
           "pause of a first bulk answer in slices to at once: OFREP, ResolveAll, `/metrics`",
           lambda rows: [rows[1][f"{way} first pause ms"] / rows[0][f"{way} first pause ms"]
                         for way in ("OFREP", "ResolveAll", "/metrics")]),
    Figure("l", "admission of 100 pods a second", "p50 and p99 at 100 pods a second to an empty webhook",
           lambda rows: [rows[-1]["p50 to empty"], rows[-1]["p99 to empty"]]),
    Figure("l", "admission of 200 pods, one by one", "p50 one by one to an empty webhook; to one that adds "
           "the same, precomputed",
           lambda rows: [rows[-1]["p50 to empty"], rows[-1]["p50 ms"] / rows[-2]["p50 ms"]]),
    Figure("m", "sources: a look that finds nothing new, and a first fetch",
           "a poll without news to Git: registry and bucket with ten files, with 9,900",
           lambda rows: [row["poll beside git"] for row in rows if row["provider"] != "git"]),
    Figure("m", "sources: a look that finds nothing new, and a first fetch",
           "a first fetch to Git: the same",
           lambda rows: [row["first fetch beside git"] for row in rows if row["provider"] != "git"]),
    Figure("n", "pushes to FeatureFlagConfiguration beside a hostile repository",
           "p50 of pushes to that at rest, 6 hostile repositories: least, median, most",
           lambda rows: _spread([{"": row["p50 ms"] / rows[0]["p50 ms"]} for row in rows[1:]], "")),
    Figure("o", "push to FeatureFlagConfiguration, beside a provider",
           "p50 and p99 of pushes beside a provider that hangs to those beside none",
           lambda rows: [rows[2]["p50 to the first"], rows[2]["p99 to the first"]]),
    Figure("p", _POKE, "a request to the Ready artifact to source-controller: p50, CPU",
           beside_flux("p50 ms", "CPU ms a round")),
    Figure("p", f"{_SOURCES} over 10 repositories, cold to Ready",
           "300 sources, cold to Ready, to source-controller: time, CPU, memory",
           beside_flux("all Ready s", "CPU s", "memory MB")),
    Figure("p", f"{_SOURCES}, a minute of interval 1h", "300 sources at rest to source-controller: CPU",
           beside_flux("CPU s")),
    Figure("p", f"{_SOURCES}, a minute of interval 1m, nothing new",
           "300 sources asked each minute to source-controller: CPU, requests to Git",
           beside_flux("CPU s", "Git requests")),
    Figure("w", "tests of 10,000 flags", "CPU time of `flagstaff test` to that of `lint`: a test of one "
           "answer for each flag; of its shares",
           lambda rows: [row["ratio"] for row in rows if row["what"].startswith("flagstaff test")]),
    Figure("x", "a shared rule with a list", "an evaluation for 100,000 users in a list to one for 10; items "
           "read one by one in Python to a look-up",
           lambda rows: [rows[2]["evaluation"], rows[3]["ratio"]]),
    Figure("x", "a shared rule with a list", "memory of compiled rules: 20 flags that refer to a list to one",
           lambda rows: [rows[4]["ratio"]]),
    Figure("z", "an evaluator for 200 pods, and a sidecar", "one evaluator for 200 pods to one sidecar: "
           "memory, p50 of a pod alone",
           lambda rows: [rows[3]["MB"] / rows[5]["MB"], rows[2]["p50 ms"] / rows[4]["p50 ms"]]),
    Figure("ab", "calls at half of the load, 10,000 flags",
           "p99 and p99.9 of calls beside a swap each second to those at rest: pure Python, compiled",
           lambda rows: [beside[name] / rest[name] for rest, beside in zip(rows[::2], rows[1::2], strict=True)
                         for name in ("p99 ms", "p99.9 ms")]),
    Figure("ac", "views of 10,000 flags in a cluster", "time of `flagstaff get sets` to that of `kubectl get "
           "flagset`; of `get flags` to that of the objects in JSON",
           lambda rows: [rows[3]["wall ms"] / rows[0]["wall ms"], rows[4]["wall ms"] / rows[2]["wall ms"]]),
)  # fmt: skip


def _pairs(rows: Rows, name: str) -> list[float]:
    """What gzip changes, by size of the set."""
    plain = {row["flags"]: row[name] for row in rows if row["encoding"] == "identity"}
    return [row[name] / plain[row["flags"]] for row in rows if row["encoding"] != "identity"]


def _spread(rows: Rows, name: str) -> list[float]:
    values = sorted(row[name] for row in rows)
    return [values[0], values[len(values) // 2], values[-1]]


def two_digits(ratio: float) -> str:
    """Two significant digits, without an exponent: 0.07, 1.6, 15, 11,700 (three, from 1,000 on)."""
    if ratio >= 1_000:
        return f"{round(ratio, -2):,.0f}"
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def table(results: dict[str, Any]) -> str:
    """The table in Markdown; a benchmark that was not run, or without its peer, has no row."""
    lines = ["| | measure | ratio | measured on |", "|---|---|---|---|"]
    for figure in FIGURES:
        rows = results.get(figure.result)
        if rows is None or (figure.part == "p" and not any(row["of"] == "ratio" for row in rows)):
            continue
        ratios = ", ".join(map(two_digits, figure.ratios(rows)))
        if ratios:
            date = results[DATES][figure.result]
            lines.append(f"| {figure.part} | {figure.measure} | {ratios} | {date} |")
    return "\n".join(lines)


def with_table(page: str, results: dict[str, Any]) -> str:
    """The page with the table between its markers."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table(results)}\n\n{END}{tail}"


def main() -> None:
    """Write the page."""
    results = json.loads(FILE.read_text(encoding="utf-8"))
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
