"""Who asked evaluators for flags, by the metrics that a Prometheus has of them."""

from __future__ import annotations

import argparse
import json
import urllib.parse
from collections import defaultdict
from datetime import timedelta
from typing import Final

from controller.authoring.request_queries import KEY, MOST_NAMED, increase_query, who_was_asked
from controller.cli.printing import UNREACHABLE, Exit

_BY: Final = (KEY, "namespace", "job")
_MOST_BYTES: Final = 16 * 1024 * 1024
_SECONDS: Final = 30.0
_MOST_DAYS: Final = 3_650


def add_request_arguments(parser: argparse.ArgumentParser, effect: str) -> None:
    """Add --prometheus, with the effect that it has, and --requests-in."""
    parser.add_argument(
        "--prometheus", metavar="URL", help=f"a Prometheus with the evaluators' metrics: {effect}"
    )
    parser.add_argument(
        "--requests-in", metavar="DAYS", type=days, default=timedelta(days=30),
        help="the days for which requests are counted (default 30)",
    )  # fmt: skip


def days(text: str) -> timedelta:
    """Read `30` or `30d`."""
    number = text.removesuffix("d")
    if not number.isdecimal() or int(number) > _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days; write 30 or 30d")
    return timedelta(days=int(number))


def requests_by_flag(address: str, within: int) -> dict[str, dict[str, float]]:
    """The evaluations of so many days by flag, and by namespace and job of the evaluators. Raises Exit."""
    import urllib3

    query = urllib.parse.urlencode({"query": increase_query(f"{max(1, within)}d", _BY)})
    # What is printed has no password of the URL.
    shown = address.rpartition("@")[2].removeprefix("http://").removeprefix("https://")
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    try:
        with urllib3.PoolManager() as pool:
            url = f"{address.rstrip('/')}/api/v1/query?{query}"
            response = pool.request("GET", url, preload_content=False, timeout=_SECONDS, retries=1)
            content = response.read(_MOST_BYTES + 1)
        if response.status != 200 or len(content) > _MOST_BYTES:
            raise Exit(f"{shown} answers {response.status} to a query, or at too great a length", UNREACHABLE)
        for result in json.loads(content)["data"]["result"]:
            labels = result["metric"]
            found[str(labels.get(KEY, ""))][who_was_asked(labels)] = float(result["value"][1])
    except urllib3.exceptions.HTTPError as error:
        raise Exit(f"{shown} cannot be asked: {type(error).__name__}", UNREACHABLE) from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise Exit(f"{shown} does not answer as Prometheus does", UNREACHABLE) from None
    return dict(found)


def requests_text(by: dict[str, float], within: int) -> str:
    """How often a flag was asked for in so many days, and who was asked most often."""
    users = sorted(((count, who) for who, count in by.items() if count), reverse=True)
    if not users:
        return f"nobody asked for it in {within} days"
    named = ", ".join(who or "an evaluator" for _, who in users[:MOST_NAMED])
    more = f" and {len(users) - MOST_NAMED} more" if len(users) > MOST_NAMED else ""
    return f"requested {sum(by.values()):,.0f} times in {within} days by {named}{more}"
