"""What wakes the reconciler of FlagSource. Pure."""

from __future__ import annotations

from typing import Final

from controller.api import flagsource
from controller.api.kinds import FLAG_SOURCE, SECRET
from controller.api.meta import secret_names, version_of
from controller.runtime.cache import Index
from controller.runtime.watches import Reconciles, Watch, listed_by

BY_SECRET: Final = Index(
    "FlagSource by Secret",
    frozenset({flagsource.KIND}),
    lambda each: {name for part in each.spec.values() for name in secret_names(part)},
)


FLAG_SOURCES: Final = Reconciles(
    FLAG_SOURCE,
    wakes=(Watch(frozenset({SECRET.kind}), changed=version_of, keys=listed_by(BY_SECRET)),),
    indexes=(BY_SECRET,),
)
