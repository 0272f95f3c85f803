"""Expectations of a pipeline's datasets, as Databricks writes them in Python."""

from __future__ import annotations

from typing import Any, Final

from relstate_dagster.state_lib.errors import DeclarationError

#: Decorators that Databricks has beside Spark's, by whether a row that breaks the condition fails the run.
EXPECTATIONS: Final = {"expect": False, "expect_all": False, "expect_or_fail": True, "expect_all_or_fail": True}
REFUSED_EXPECTATIONS: Final = ("expect_or_drop", "expect_all_or_drop")


def expectations_of(decorator: str, arguments: tuple[Any, ...], where: str) -> dict[str, tuple[str, bool]]:
    """Conditions by their names that a decorator declares.

    Raises
    ------
    DeclarationError
        It drops rows, or is not given a name and a condition.
    """
    if decorator in REFUSED_EXPECTATIONS:
        raise DeclarationError(
            f"{where}: {decorator} is not taken: a view holds what its query returns. Write the condition into the query's "
            "where, or take expect_or_fail"
        )
    fails = EXPECTATIONS[decorator]
    if "all" in decorator.split("_"):
        conditions = arguments[0] if len(arguments) == 1 else None
    else:
        conditions = dict([arguments]) if len(arguments) == 2 else None
    if not isinstance(conditions, dict):
        raise DeclarationError(f"{where}: {decorator} takes a name and a condition, or a dictionary of them.")
    return {str(name): (str(condition), fails) for name, condition in conditions.items()}
