"""Tables of changes by key: a later row replaces the earlier one, or deletes it.

Such a table is declared by its current rows:

    CREATE TABLE u (k INT, v INT, gone BOOLEAN, PRIMARY KEY (k))
    TBLPROPERTIES ('source.kind' = 'upsert', 'source.deleted' = 'gone', 'source.order' = 'ts')

It is two things: an append-only source ``u_changelog``, which is the table, and a materialized view ``u`` over it, which has
the newest row of each key. Views read ``u`` as they read any view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from relstate_dagster.jobs.declare.checks import CHECKS, checks_of
from relstate_dagster.jobs.declare.model import OURS, VIEW_PROPERTIES, SourceColumn, SourceDeclaration, ViewDeclaration
from relstate_dagster.jobs.declare.watermarks import WATERMARK, watermark_of
from relstate_dagster.state_lib.constants import COMMIT_VERSION
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.sql_text import quoted, text_literal

#: What a source is, and the values of that.
KIND: Final = "source.kind"
KINDS: Final = ("table", "upsert", "debezium")
#: The condition of a row that deletes its key.
DELETED: Final = "source.deleted"
#: A column or an expression: of two rows of a key, that with the greater one is the newer.
ORDER: Final = "source.order"
#: What the envelope of a change is: columns that are structs, columns of JSON, or one column of JSON.
ENVELOPE: Final = "source.envelope"
#: The properties of sources that are ours.
SOURCE_PROPERTIES: Final = (KIND, DELETED, ORDER, ENVELOPE, WATERMARK, "index.columns")
#: Properties that the view of a changelog has from its declaration.
_OF_THE_VIEW: Final = tuple(key for key in VIEW_PROPERTIES if key.startswith(("dagster.", "publish.")))

_SUFFIX: Final = "_changelog"
_PLACE: Final = "__place"
_ROW: Final = "__row"
_OP: Final = "__op"


def changelog_of(name: str) -> str:
    """Name of the source that holds a declared table's changes."""
    return f"{name}{_SUFFIX}"


def is_changelog_view(properties: Mapping[str, str]) -> bool:
    """Whether a view has the newest rows of a changelog, by its properties."""
    return properties.get(KIND, "table") != "table"


def _is_of_the_view(key: str) -> bool:
    return key in _OF_THE_VIEW or key.startswith(CHECKS)


def check_source_properties(source: SourceDeclaration, where: str) -> None:
    """Check the properties of a source that are ours.

    Raises
    ------
    DeclarationError
        One is unknown, has no such value, or says nothing beside the others.
    """
    found = source.properties
    known = (*SOURCE_PROPERTIES, *_OF_THE_VIEW)
    for key in found:
        if key.startswith(OURS) and key not in known and not key.startswith(CHECKS):
            raise DeclarationError(f"{where}: property {key!r} is unknown; there are {', '.join(known)}.")
    kind = found.get(KIND, "table")
    if kind not in KINDS:
        raise DeclarationError(f"{where}: '{KIND}' = {kind!r} is unknown; it is one of {', '.join(KINDS)}.")
    allowed = {"table": (WATERMARK, "index.columns"), "upsert": (DELETED, ORDER), "debezium": (ORDER, ENVELOPE)}[kind]
    for key in found:
        is_ours = key != KIND and key.startswith(OURS) and key not in allowed
        if is_ours and not (is_changelog_view(found) and _is_of_the_view(key)):
            raise DeclarationError(f"{where}: '{key}' says nothing of a source of '{KIND}' = '{kind}'; leave it out.")
    _check_watermark(source, where)
    if kind == "table":
        return
    checks_of(found, where)
    if not source.primary_key:
        raise DeclarationError(f"{where}: '{KIND}' = '{kind}' needs a PRIMARY KEY, whose earlier rows later ones replace.")
    reserved = {c.name.lower() for c in source.columns} & {_PLACE, _ROW, _OP, COMMIT_VERSION}
    if reserved:
        raise DeclarationError(f"{where}: a table of '{KIND}' = '{kind}' cannot have a column {', '.join(sorted(reserved))}.")
    if kind == "debezium" and not source.columns:
        raise DeclarationError(f"{where}: '{KIND}' = 'debezium' needs the columns that rows have before and after a change.")


def _check_watermark(source: SourceDeclaration, where: str) -> None:
    if source.watermark is None:
        return
    watermark = watermark_of(source.watermark, where)
    if source.columns and watermark.column.lower() not in {column.name.lower() for column in source.columns}:
        raise DeclarationError(f"{where}: '{WATERMARK}' is about column {watermark.column}, which the source does not have.")


def expanded(source: SourceDeclaration) -> tuple[SourceDeclaration, ViewDeclaration | None]:
    """The sources and views that a declared source stands for.

    One of changes becomes a changelog and the view of its newest rows.
    """
    kind = source.properties.get(KIND, "table")
    if kind == "table":
        return source, None
    own = {key: text for key, text in source.properties.items() if key in SOURCE_PROPERTIES or _is_of_the_view(key)}
    others = {key: value for key, value in source.properties.items() if key not in own}
    log = replace(
        source,
        name=changelog_of(source.name),
        columns=source.columns if kind == "upsert" else _envelope_columns(source),
        primary_key=(),
        properties=others,
        is_changelog=True,
    )
    comments = {column.name: column.comment for column in source.columns if column.comment}
    view = ViewDeclaration(
        name=source.name,
        query=_upserted(source) if kind == "upsert" else _debezium(source),
        comment=source.comment or f"The newest row of each key of {log.name}",
        properties=own,
        column_comments=comments,
        path=source.path,
        line=source.line,
    )
    return log, view


def _order(source: SourceDeclaration) -> str:
    return f"struct({source.properties.get(ORDER, COMMIT_VERSION)})"


def _upserted(source: SourceDeclaration) -> str:
    key = ", ".join(map(quoted, source.primary_key))
    place = f"row_number() OVER (PARTITION BY {key} ORDER BY {_order(source)} DESC) AS {_PLACE}"
    shown = ", ".join(quoted(c.name) for c in source.columns) or f"* EXCEPT ({_PLACE}, {COMMIT_VERSION})"
    deleted = source.properties.get(DELETED)
    alive = f" AND NOT coalesce(({deleted}), false)" if deleted else ""
    return f"SELECT {shown} FROM (SELECT *, {place} FROM {quoted(changelog_of(source.name))}) WHERE {_PLACE} = 1{alive}"


# -- Debezium ---------------------------------------------------------------------------------------------------------


def _envelope_columns(source: SourceDeclaration) -> tuple[SourceColumn, ...]:
    """The columns of a table of envelopes, where it is made here."""
    envelope = source.properties.get(ENVELOPE, "struct")
    if envelope not in ("struct", "json"):
        return (SourceColumn(envelope, "STRING", ddl=f"{quoted(envelope)} STRING"),)
    row = "STRING" if envelope == "json" else _row_type(source)
    columns = {"before": row, "after": row, "source": "STRING", "op": "STRING", "ts_ms": "BIGINT"}
    return tuple(SourceColumn(name, data_type, ddl=f"{quoted(name)} {data_type}") for name, data_type in columns.items())


def _row_type(source: SourceDeclaration) -> str:
    return f"STRUCT<{', '.join(f'{quoted(c.name)}: {c.type_text}' for c in source.columns)}>"


def _debezium(source: SourceDeclaration) -> str:
    """Debezium events.

    Create, update and read bring the row after; delete has at least the key of the row before.

    Rows without an operation are tombstones, which say nothing more than the delete before them; ``m`` is a message and no row.
    """
    envelope = source.properties.get(ENVELOPE, "struct")
    log, row_type = quoted(changelog_of(source.name)), _row_type(source)
    if envelope in ("struct", "json"):
        op, events = "op", log
        before, after = ("before", "after") if envelope == "struct" else (_from_json(c, row_type) for c in ("before", "after"))
    else:
        # With a schema beside it, as Kafka Connect's JSON converter writes it, the envelope is the payload.
        body = f"coalesce(get_json_object({quoted(envelope)}, '$.payload'), {quoted(envelope)})"
        fields = f"before: {row_type}, after: {row_type}, op: STRING, ts_ms: BIGINT, source: MAP<STRING, STRING>"
        parsed = _from_json(body, f"STRUCT<{fields}>")
        events = f"(SELECT *, {parsed} AS event FROM {log})"
        op, before, after = "event.op", "event.before", "event.after"
    unknown = f"concat({text_literal(source.name + ': an operation that no row follows from: ')}, {op})"
    picked = (
        f"CASE WHEN {op} IN ('c', 'u', 'r') THEN {after} WHEN {op} = 'd' THEN {before} "
        f"ELSE CAST(raise_error({unknown}) AS {row_type}) END"
    )
    rows = f"SELECT *, {picked} AS {_ROW}, {op} AS {_OP} FROM {events} WHERE {op} IS NOT NULL AND {op} <> 'm'"
    key = ", ".join(f"{_ROW}.{quoted(c)}" for c in source.primary_key)
    place = f"row_number() OVER (PARTITION BY {key} ORDER BY {_order(source)} DESC) AS {_PLACE}"
    shown = ", ".join(f"{_ROW}.{quoted(c.name)} AS {quoted(c.name)}" for c in source.columns)
    return f"SELECT {shown} FROM (SELECT *, {place} FROM ({rows})) WHERE {_PLACE} = 1 AND {_OP} <> 'd'"


def _from_json(text: str, data_type: str) -> str:
    return f"from_json({text}, {text_literal(data_type)}, map('mode', 'FAILFAST'))"
