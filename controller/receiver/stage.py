"""What wakes the reconciler of FlagReceiver. Pure."""

from __future__ import annotations

from typing import Final

from controller.api import receiver
from controller.api.kinds import FLAG_RECEIVER, SECRET
from controller.api.meta import secret_names, version_of
from controller.runtime.objects.cache import Index
from controller.runtime.reconciling.watches import Reconciles, Watch, listed_by

BY_SECRET: Final = Index(
    "FlagReceiver by Secret", frozenset({receiver.KIND}), lambda each: secret_names(each.spec)
)


FLAG_RECEIVERS: Final = Reconciles(
    FLAG_RECEIVER,
    wakes=(Watch(frozenset({SECRET.kind}), changed=version_of, keys=listed_by(BY_SECRET)),),
    indexes=(BY_SECRET,),
)
