"""The words by which users name kinds: `sets`, `flagset`, `fset`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.api import kinds
from controller.cli.shared.ending import USAGE, Exit
from controller.cli.shared.printing import did_you_mean

if TYPE_CHECKING:
    from controller.api.kinds import ResourceType

SOURCES: Final = (kinds.FLAG_SOURCE, *kinds.FLUX_SOURCES)
"""What a FlagSet may be built from."""
SHOWN: Final = (
    kinds.FLAG_SOURCE,
    kinds.FLAG_SET,
    kinds.FEATURE_FLAG_CONFIGURATION,
    kinds.FEATURE_FLAG,
    kinds.FLAG_RECEIVER,
    kinds.FLAG_PROVIDER,
    kinds.FLAG_ALERT,
    kinds.FLAG_GRANT,
    kinds.FLAG_OVERRIDE,
    kinds.FLAG_ROLLOUT,
    kinds.METRIC_TEMPLATE,
    kinds.FEATURE_FLAG_SOURCE,
    kinds.IN_PROCESS_CONFIGURATION,
    kinds.FLAGD,
    kinds.EVALUATOR_UPGRADE,
)
"""The kinds that users write or read; `all`."""
_SHORT: Final = {
    "source": kinds.FLAG_SOURCE,
    "set": kinds.FLAG_SET,
    "configuration": kinds.FEATURE_FLAG_CONFIGURATION,
    "receiver": kinds.FLAG_RECEIVER,
    "provider": kinds.FLAG_PROVIDER,
    "alert": kinds.FLAG_ALERT,
    "grant": kinds.FLAG_GRANT,
    "override": kinds.FLAG_OVERRIDE,
    "rollout": kinds.FLAG_ROLLOUT,
    "template": kinds.METRIC_TEMPLATE,
    "upgrade": kinds.EVALUATOR_UPGRADE,
}


def _words() -> dict[str, ResourceType]:
    words = dict(_SHORT)
    for short, type_ in _SHORT.items():
        words[f"{short}s"] = type_
    installed = {definition.kind: definition for definition in kinds.DEFINITIONS}
    for type_ in SHOWN:
        words[type_.kind.lower()] = words[type_.plural] = type_
        words[installed[type_.kind].short_name] = type_
    return words


WORDS: Final = _words()


def type_named(word: str, *others: str) -> ResourceType:
    """The kind of a word. Raises Exit with one that is spelled alike, of kinds and of `others`."""
    if (type_ := WORDS.get(word.lower())) is not None:
        return type_
    raise Exit(f"there is no kind {word!r}{did_you_mean(word, (*_SHORT, *others, *WORDS))}", USAGE)


def suspendable(type_: ResourceType) -> bool:
    """Whether objects of the kind can be suspended."""
    return type_.spec is not None and "suspend" in type_.spec.model_fields
