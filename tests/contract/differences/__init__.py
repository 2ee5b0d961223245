"""Where the published Python cores do not answer as the flagd server does, and this evaluator follows the
server.

Each row says when it applies (to one evaluated operator, with its operands), why, and shows one rule with
both answers; a test holds both. An evaluation to which no row applies must come out the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.differences.arguments import ARGUMENTS
from tests.contract.differences.arithmetic import ARITHMETICAL
from tests.contract.differences.comparisons import COMPARED
from tests.contract.differences.flagd import FLAGD
from tests.contract.differences.loops import LOOPED
from tests.contract.differences.outcomes import FLAG
from tests.contract.differences.texts import TEXTS
from tests.contract.differences.variables import VARIABLES

if TYPE_CHECKING:
    from tests.contract.differences.row import Difference

KNOWN_DIFFERENCES: tuple[Difference, ...] = (
    *FLAG, *ARGUMENTS, *COMPARED, *VARIABLES, *TEXTS, *ARITHMETICAL, *LOOPED, *FLAGD,
)  # fmt: skip
