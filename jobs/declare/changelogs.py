"""Tables of changes by key: a later row replaces the earlier one, or deletes it.

Such a table is declared by its current rows:

    CREATE TABLE u (k INT, v INT, gone BOOLEAN, PRIMARY KEY (k))
    TBLPROPERTIES ('source.kind' = 'upsert', 'source.deleted' = 'gone', 'source.order' = 'ts')

It is two things: an append-only source ``u_changelog``, which is the table, and a materialized view ``u`` over it, which has
the newest row of each key. With ``'history' = 'scd2'`` it has all of them. Views read ``u`` as they read any view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from relstate_dagster.jobs.declare.catalog_tables import TABLE
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
#: Whether the view has all versions of a row, and the values of that.
HISTORY: Final = "history"
HISTORIES: Final = ("scd2",)
#: A column or an expression: since when a version is valid. Versions that tie in it are ordered by :data:`ORDER`.
HISTORY_ORDER: Final = "history.order"
START_AT: Final = "__start_at"
END_AT: Final = "__end_at"
#: The properties of sources that are ours.
SOURCE_PROPERTIES: Final = (KIND, TABLE, DELETED, ORDER, ENVELOPE, HISTORY, HISTORY_ORDER, WATERMARK, "index.columns")
#: Properties that the view of a changelog has from its declaration.
_OF_THE_VIEW: Final = tuple(key for key in VIEW_PROPERTIES if key.startswith(("dagster.", "publish.")))

_SUFFIX: Final = "_changelog"
#: The column that numbers the rows of a key, the newest first.
PLACE: Final = "__place"
_ROW: Final = "__row"
_OP: Final = "__op"
_ORDER: Final = "__order"
_HASH: Final = "__hash"
_NEXT: Final = "__next"
#: Rows as JSON differ if the rows do: hashes of rows leave NULLs out, and JSON has milliseconds by default.
_AS_JSON: Final = (
    "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', "
    "'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
)


def changelog_of(name: str) -> str:
    """Name of the source that holds a declared table's changes."""
    return f"{name}{_SUFFIX}"


def is_changelog_view(properties: Mapping[str, str]) -> bool:
    """Whether a view has the rows of a changelog, by its properties."""
    return properties.get(KIND, "table") != "table"


def has_history(properties: Mapping[str, str]) -> bool:
    """Whether such a view has all versions of a row."""
    return HISTORY in properties


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
    allowed = {
        "table": (TABLE, WATERMARK, "index.columns"),
        "upsert": (TABLE, DELETED, ORDER, HISTORY, HISTORY_ORDER),
        "debezium": (TABLE, ORDER, ENVELOPE, HISTORY, HISTORY_ORDER),
    }[kind]
    for key in found:
        is_ours = key != KIND and key.startswith(OURS) and key not in allowed
        if is_ours and not (is_changelog_view(found) and _is_of_the_view(key)):
            raise DeclarationError(f"{where}: '{key}' says nothing of a source of '{KIND}' = '{kind}'; leave it out.")
    _check_watermark(source, where)
    if kind == "table":
        return
    _check_history(found, where)
    checks_of(found, where)
    if not source.primary_key:
        raise DeclarationError(f"{where}: '{KIND}' = '{kind}' needs a PRIMARY KEY, whose earlier rows later ones replace.")
    hidden = {PLACE, _ROW, _OP, _ORDER, _HASH, _NEXT, START_AT, END_AT} if has_history(found) else {PLACE, _ROW, _OP}
    reserved = {c.name.lower() for c in source.columns} & {*hidden, COMMIT_VERSION}
    if reserved:
        raise DeclarationError(f"{where}: a table of '{KIND}' = '{kind}' cannot have a column {', '.join(sorted(reserved))}.")
    if kind == "debezium" and not source.columns:
        raise DeclarationError(f"{where}: '{KIND}' = 'debezium' needs the columns that rows have before and after a change.")


def _check_history(found: Mapping[str, str], where: str) -> None:
    if not has_history(found):
        if HISTORY_ORDER in found:
            raise DeclarationError(f"{where}: '{HISTORY_ORDER}' says nothing without '{HISTORY}' = '{HISTORIES[0]}'.")
        return
    if found[HISTORY] not in HISTORIES:
        raise DeclarationError(f"{where}: '{HISTORY}' = {found[HISTORY]!r} is unknown; it is {', '.join(HISTORIES)}.")
    if HISTORY_ORDER not in found and ORDER not in found:
        raise DeclarationError(
            f"{where}: '{HISTORY}' = '{found[HISTORY]}' needs '{HISTORY_ORDER}' (or '{ORDER}'): since when a version is valid."
        )


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
        comment=source.comment or f"{'Every version' if has_history(own) else 'The newest row'} of each key of {log.name}",
        properties=own,
        column_comments=comments,
        path=source.path,
        line=source.line,
    )
    return log, view


def _order(source: SourceDeclaration) -> str:
    return f"struct({source.properties.get(ORDER, COMMIT_VERSION)})"


def _versions(source: SourceDeclaration, rows: str, key: Sequence[str], shown: str, is_alive: str) -> str:
    """Versions of rows, each valid until the next one of its key.

    A version that is replaced in the moment in which it begins is none. One that is delivered twice is one.

    Parameters
    ----------
    rows : a query of all changes, with a hash of each.
    key, shown : the columns of the key, and those of the view.
    is_alive : the condition of a row that does not delete its key.
    """
    start = source.properties.get(HISTORY_ORDER) or source.properties[ORDER]
    order = ", ".join(dict.fromkeys((start, source.properties.get(ORDER, start))))
    start = start if _is_one_expression(start) else f"struct({start})"
    listed = ", ".join(key)

    def failed(why: str) -> str:
        return f"CAST(raise_error(concat({text_literal(f'{source.name}: {why}: ')}, to_json(struct({listed})))) AS BOOLEAN)"

    has_key = " AND ".join(f"{column} IS NOT NULL" for column in key)
    ordered = (
        f"SELECT *, {start} AS {START_AT}, struct({order}) AS {_ORDER} FROM ({rows}) "
        f"WHERE ({has_key}) OR {failed('a row with NULL in its key')}"
    )
    following = f"lead(struct({START_AT}, {_ORDER}, {_HASH})) OVER (PARTITION BY {listed} ORDER BY {order}, {_HASH})"
    tie = failed(f"two different rows of one key with the same {HISTORY_ORDER} and {ORDER}, so that none is the later one")
    is_version = (
        f"CASE WHEN {_NEXT} IS NULL THEN true "
        f"WHEN {_NEXT}.{_ORDER} <=> {_ORDER} AND NOT {_NEXT}.{_HASH} <=> {_HASH} THEN {tie} "
        f"ELSE NOT {_NEXT}.{START_AT} <=> {START_AT} END"
    )
    return (
        f"SELECT {shown}, {START_AT}, {_NEXT}.{START_AT} AS {END_AT} "
        f"FROM (SELECT *, {following} AS {_NEXT} FROM ({ordered})) WHERE {is_version} AND {is_alive}"
    )


def _hash(columns: str) -> str:
    """Sixteen bytes that tell rows apart."""
    return f"substring(unhex(sha2(to_json(struct({columns}), {_AS_JSON}), 256)), 1, 16)"


def _is_one_expression(text: str) -> bool:
    """Whether a text is one expression, and not a list.

    A list has commas outside of parentheses and quotes.
    """
    depth, quote = 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character == "," and not depth:
            return False
        else:
            depth += (character in "([") - (character in ")]")
    return True


def _upserted(source: SourceDeclaration) -> str:
    deleted = source.properties.get(DELETED)
    if has_history(source.properties):
        shown = ", ".join(quoted(c.name) for c in source.columns)
        hidden = f"{START_AT}, {_ORDER}, {_HASH}, {_NEXT}"
        log = f"SELECT {shown or f'* EXCEPT ({COMMIT_VERSION})'} FROM {quoted(changelog_of(source.name))}"
        rows, alive = f"SELECT *, {_hash('*')} AS {_HASH} FROM ({log})", is_not(deleted or "false")
        return _versions(source, rows, [quoted(c) for c in source.primary_key], shown or f"* EXCEPT ({hidden})", alive)
    shown = ", ".join(quoted(c.name) for c in source.columns) or f"* EXCEPT ({PLACE}, {COMMIT_VERSION})"
    return newest_rows(
        quoted(changelog_of(source.name)),
        map(quoted, source.primary_key),
        _order(source),
        shown,
        is_not(deleted) if deleted else "",
    )


def newest_rows(rows: str, key: Iterable[str], order: str, shown: str, is_alive: str = "") -> str:
    """A query of the newest row of each key.

    Parameters
    ----------
    rows : a table, or a query in parentheses. It has no column of the name :data:`PLACE`.
    key, order : SQL of the columns of the key, and of what is greatest for the newest row.
    shown : SQL of the columns of the result.
    is_alive : the condition of a newest row that does not delete its key.
    """
    place = f"row_number() OVER (PARTITION BY {', '.join(key)} ORDER BY {order} DESC) AS {PLACE}"
    alive = f" AND {is_alive}" if is_alive else ""
    return f"SELECT {shown} FROM (SELECT *, {place} FROM {rows}) WHERE {PLACE} = 1{alive}"


def is_not(condition: str) -> str:
    """The condition of rows for which another one is false or NULL."""
    return f"NOT coalesce(({condition}), false)"


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
    columns = [f"{_ROW}.{quoted(c)}" for c in source.primary_key]
    shown = ", ".join(f"{_ROW}.{quoted(c.name)} AS {quoted(c.name)}" for c in source.columns)
    if has_history(source.properties):
        hashed = f"SELECT *, {_hash(f'{_ROW}, {_OP}')} AS {_HASH} FROM ({rows})"
        return _versions(source, hashed, columns, shown, f"{_OP} <> 'd'")
    return newest_rows(f"({rows})", columns, _order(source), shown, f"{_OP} <> 'd'")


def _from_json(text: str, data_type: str) -> str:
    return f"from_json({text}, {text_literal(data_type)}, map('mode', 'FAILFAST'))"
