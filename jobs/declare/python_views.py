"""Declaring a view in Python instead of in a ``.sql`` file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import overload

from relstate_dagster.jobs.declare.model import ViewDeclaration
from relstate_dagster.jobs.declare.parser import check_view_properties


@overload
def materialized_view(
    *,
    query: str,
    name: str,
    comment: str | None = None,
    cluster_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> ViewDeclaration: ...
@overload
def materialized_view(
    *,
    query: None = None,
    name: str | None = None,
    comment: str | None = None,
    cluster_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Callable[[Callable[[], str]], ViewDeclaration]: ...


def materialized_view(
    *,
    query: str | None = None,
    name: str | None = None,
    comment: str | None = None,
    cluster_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> ViewDeclaration | Callable[[Callable[[], str]], ViewDeclaration]:
    """Declare a materialized view, from a query or from a function that returns one.

    Parameters
    ----------
    query
        The query; without it, the call is a decorator.
    name
        The view's name; a decorated function's own name by default.
    comment
        What the view is; a decorated function's docstring by default.
    cluster_by, properties
        As ``CLUSTER BY`` and ``TBLPROPERTIES``.

    Raises
    ------
    DeclarationError
        The name or a property is not allowed.

    Examples
    --------
    >>> busy = materialized_view(name="busy", query="SELECT origin, count(*) AS flights FROM flights GROUP BY origin")
    >>> @materialized_view(properties={"refresh.policy": "incremental"})
    ... def carriers() -> str:
    ...     "Airlines that fly."
    ...     return "SELECT DISTINCT carrier FROM flights"
    >>> carriers.name, carriers.comment
    ('carriers', 'Airlines that fly.')
    """

    def declare(found_query: str, found_name: str, found_comment: str | None, path: str | None, line: int) -> ViewDeclaration:
        return check_view_properties(
            ViewDeclaration(
                name=name or found_name,
                query=inspect.cleandoc(found_query),
                comment=comment or found_comment,
                cluster_by=tuple(cluster_by),
                properties=dict(properties or {}),
                path=path,
                line=line,
            )
        )

    def decorate(function: Callable[[], str]) -> ViewDeclaration:
        code = function.__code__
        return declare(function(), function.__name__, inspect.getdoc(function), code.co_filename, code.co_firstlineno)

    if query is None:
        return decorate
    return declare(query, name or "", None, None, 1)
