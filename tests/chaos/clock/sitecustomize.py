"""Python runs this before the program, where this folder is on PYTHONPATH: the wall clock is off by as many
seconds as the file FLAGSTAFF_CHAOS_CLOCK says.

What Python code reads is off, at any level; what OpenSSL and other libraries read by themselves is not, nor
is any monotonic clock.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

import time_machine

_LOOK: Final = 0.1


def _follow(file: Path) -> None:
    moved, off_by = None, 0.0
    while True:
        wanted = float(file.read_text())
        if wanted != off_by:
            if moved is not None:
                moved.stop()
                moved = None
            if wanted:
                moved = time_machine.travel(time.time() + wanted, tick=True)  # noqa: TID251 - it is what is moved
                moved.start()
            off_by = wanted
        time.sleep(_LOOK)


threading.Thread(target=_follow, args=(Path(os.environ["FLAGSTAFF_CHAOS_CLOCK"]),), daemon=True).start()
