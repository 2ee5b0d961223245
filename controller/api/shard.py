"""FlagShard: a part of a flag set that is larger than one object may be."""

from __future__ import annotations

from typing import Any, Final

from controller.api.fields import Model, Name

KIND: Final = "FlagShard"
PLURAL: Final = "flagshards"


class FlagShardSpec(Model):
    """A part, immutable."""

    digest: Name
    flag_spec: dict[str, Any]
