"""The annotation that says in one line what was done to a pod or a workload. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from controller.delivery.standing_orders import PREFIX
from controller.pods.settings import well_known
from controller.runtime.user_text.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NAMESPACED: Final = "namespaced"
"""All flags are of the pod's own namespace."""
ACROSS: Final = "cross-namespace"
"""Some flags are of another namespace."""
EXTERNAL: Final = "external"
"""Some flags come from outside the cluster's objects."""
SCOPED: Final = "scoped"
"""The evaluator gets the flag sets that are named, and no other flags."""
REFRESHABLE: Final = "refreshable"
"""Changes of the flags reach the pod without a restart."""
_MOST: Final = 500
_PROPOSAL: Final = ("openfeature.io/", "openfeature.agent/")


def remark_of(words: Sequence[str], *parts: str) -> str:
    """The line: `namespaced, scoped; flags of FlagSet checkout; …`. Empty parts are left out."""
    return one_line("; ".join(filter(None, (", ".join(words), *parts))), _MOST)


def remark_annotations(remark: str, annotations: Iterable[str]) -> dict[str, str]:
    """The annotations that hold a remark, on an object with these annotations: also under the name of the
    proposal OFEP-001 where one of its annotations is used.
    """
    proposed = any(name.startswith(_PROPOSAL) for name in annotations)
    return {well_known.REMARKS: remark, **({well_known.PROPOSED_REMARKS: remark} if proposed else {})}


def scope_of(sources: Sequence[Mapping[str, Any]], namespace: str) -> tuple[str, ...]:
    """The words for an evaluator's sources, for a pod of `namespace`: entries without a `provider` are flag
    sets of the cluster, by selector.
    """
    selectors = [str(source.get("selector")) for source in sources if "provider" not in source]
    named = all("selector" in source or source.get("provider") == "file" for source in sources)
    reach = NAMESPACED
    if any(source.get("provider", "file") != "file" for source in sources):
        reach = EXTERNAL
    elif any(re.split("[/+]", selector.removeprefix(PREFIX))[0] != namespace for selector in selectors):
        reach = ACROSS
    return (reach, *([SCOPED] if named else []), REFRESHABLE)


def flags_of(record: Mapping[str, str]) -> str:
    """`flags of FlagSet checkout, …`, by the record of what a pod follows."""
    named = record.get("from") or record.get("flagSet", "")
    return f"flags of {', '.join(name.replace('/', ' ', 1) for name in named.split(','))}" if named else ""


def evaluator_of(image: str) -> str:
    """`evaluator 0.4.0`, by the tag of its image, or the beginning of its digest."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return f"evaluator {tag or digest[:19] or 'latest'}"
