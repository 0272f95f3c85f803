"""Places where a test may kill the process for real, to see that the next run repairs what was left.

``RELSTATE_FAILPOINT=<place>`` sends SIGKILL to this very process when it gets there; unset, nothing happens.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "RELSTATE_FAILPOINT"


def reached(place: str) -> None:
    """Die here, uncleanly, if a test asks for it."""
    if os.environ.get(VARIABLE) == place:
        os.kill(os.getpid(), signal.SIGKILL)
