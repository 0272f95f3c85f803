"""Frozen dataclasses as JSON and back: data crosses the socket, no code."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return what ``json`` writes of a value.

    Raises
    ------
    TypeError
        It is neither a dataclass nor made of JSON's types, tuples, times and time spans.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a value of type {type(value).__name__} does not cross the socket")


def from_plain(kind: type[T], value: Any) -> T:
    """Return the value of a type that :func:`to_plain` has written."""
    decoded: T = _made(kind, value)
    return decoded


def _made(kind: Any, value: Any) -> Any:  # noqa: PLR0911 - one line a kind of type
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        known = [argument for argument in arguments if argument is not type(None)]
        if value is None or (isinstance(value, str) and str in known):
            return value
        # Of a text or a dataclass, what is no text is the dataclass.
        return _made(next(kind for kind in known if kind is not str), value)
    if origin is tuple:
        if arguments[1:] == (...,):
            return tuple(_made(arguments[0], item) for item in value)
        return tuple(_made(argument, item) for argument, item in zip(arguments, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: _made(arguments[1], item) for name, item in value.items()}
    if is_dataclass(kind):
        hints = _hints(kind)  # type: ignore[arg-type]
        return kind(**{name: _made(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if kind is timedelta:
        return timedelta(seconds=value)
    if kind is datetime:
        return datetime.fromisoformat(value)
    return value


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
