"""Places where a test may kill the process, to see the next run repair it.

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
