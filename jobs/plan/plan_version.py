"""The version of plans: by which planner a stored plan was made."""

from __future__ import annotations

from typing import Final

#: Raised with every change by which plans made before may give other rows than their queries do. A view that another version
#: has planned is planned again by the next run, and rebuilt where that gives another plan. 1: IN below NOT with NULLs,
#: comparisons of CHAR columns. 2: means of decimals, rounded once; sums of long decimals, in two parts. 3: plans name the
#: kind of each aggregate call. 4: plans say how far a change reaches in a window. 5: views that read
#: the date, and no more of the time, are maintained; sums of floating-point numbers are exact.
PLAN_VERSION: Final = 5
