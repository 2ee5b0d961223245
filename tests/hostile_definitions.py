"""Definitions that are small to store and large to read."""

from __future__ import annotations

import random
from typing import Final

VALUES: Final = 1_300_000
"""Nearly as many as a document may hold, whose commas and brackets are counted."""


def large_document(number: int) -> str:
    """A document of 3.6 MB, 0.4 MB where it is stored, and some hundred once it is read."""
    values = "".join(random.Random(number).choices(("[],", "{},", "0,", '"",'), k=VALUES))
    flag = f'{{"state":"ENABLED","defaultVariant":"a","variants":{{"a":{{"l":[{values}1]}}}}}}'
    return f'{{"flags":{{"flag-{number}":{flag}}}}}'
