"""FlagShard: a part of a flag set that is larger than one object may be."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from controller.api.fields import Model

KIND: Final = "FlagShard"
PLURAL: Final = "flagshards"


class FlagShardSpec(Model):
    """A part, immutable."""

    digest: Annotated[str, Field(min_length=1, max_length=128)]
    flag_spec: dict[str, Any]
