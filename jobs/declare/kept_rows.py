"""Numbers of rows that operators keep apart, so that few changes read the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from relstate_dagster.state_lib.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class KeptRows:
    """A property of views that is a number of rows.

    Parameters
    ----------
    name : of the property.
    default : where a view does not set it.
    least, most : of the values that it may have.
    """

    name: str
    default: int
    least: int
    most: int

    def of(self, properties: Mapping[str, str], where: str) -> int:
        """The number that a view's properties say.

        Raises
        ------
        DeclarationError
            It is no number, or not one of those allowed. ``where`` names the view.
        """
        text = properties.get(self.name, str(self.default)).strip()
        if not (text.isascii() and text.isdigit() and self.least <= int(text) <= self.most):
            raise DeclarationError(
                f"{where}: '{self.name}' = {text!r} is no number of rows from {self.least} to {self.most}; "
                f"leave it out for {self.default}."
            )
        return int(text)


#: How many of its first values a group keeps for each min, max, min_by or max_by.
EXTREME_ROWS: Final = KeptRows("state.extreme_rows", default=16, least=1, most=10_000)

#: How many more rows than it returns ORDER BY … LIMIT keeps.
SPARE_ROWS: Final = KeptRows("state.spare_rows", default=1000, least=0, most=100_000)

#: How many rows at the end of a partition a window keeps apart, beside those that its frames need.
WINDOW_ROWS: Final = KeptRows("state.window_rows", default=16, least=0, most=10_000)
