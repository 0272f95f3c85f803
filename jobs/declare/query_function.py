"""Queries that are Python functions, which return a DataFrame.

A function is known by its file, its name and a digest of its source, without running it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from relstate_dagster.jobs.declare.lineage import dependencies
from relstate_dagster.state_lib.errors import DeclarationError

#: Folders that hold no files of a project itself.
_FOLDERS_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "site-packages", "dist", "build"})


@dataclass(frozen=True, slots=True)
class QueryFunction:
    """A Python function that returns the rows of a view as a DataFrame.

    Attributes
    ----------
    name
        The view's name in the file that declares it.
    path
        The file; empty for a function that exists in this process alone.
    digest
        Of the function's source, and of all in the project that it uses.
    reads
        The sources and views that it reads; None if they are found only by calling it.
    root
        The folder of the project, from which the file imports others.
    source
        The text of the function, for people to read.
    """

    name: str
    path: str
    digest: str
    reads: tuple[str, ...] | None = field(default=None, compare=False)
    root: str = ""
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"function {self.name} in {self.path or 'this process'}"


#: The digest of a query that is the rows of several views.
UNION: Final = "union by name"
#: A view's query: its SQL, or the function that returns its rows.
Query: TypeAlias = str | QueryFunction


def union_by_name(names: Iterable[str]) -> QueryFunction:
    """The rows of several views, whose columns go together by their names."""
    parts = tuple(names)
    return QueryFunction(", ".join(parts), "", UNION, parts, source=f"# the rows of {', '.join(parts)}, by names of columns")


def text_of_query(query: Query) -> str:
    """The text of a query, for people to read."""
    return query if isinstance(query, str) else query.source or str(query)


def selects_all(query: Query) -> bool:
    """Whether a query may select all columns: a text with a ``*``, or any function."""
    return not isinstance(query, str) or "*" in query


def digest_text(query: Query) -> str:
    """The identity of a query: a text itself, a function's name and digest."""
    return query if isinstance(query, str) else f"{query.name} {query.digest}"


def is_same_query(one: Query, other: Query) -> bool:
    """Whether two queries are equal; functions, wherever their files lie now."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return (one.name, one.digest) == (other.name, other.digest)


def with_known_reads(query: Query, before: Query) -> Query:
    """A function's query with what its last plan read, where its file does not tell."""
    if isinstance(query, str) or isinstance(before, str) or query.reads is not None:
        return query
    return replace(query, reads=before.reads)


def python_files(root: Path, *words: str) -> Iterator[tuple[Path, str]]:
    """Python files of a project that contain some words, with their texts.

    They come in order of their paths. Virtual environments, hidden folders and links to folders are passed over.

    Raises
    ------
    DeclarationError
        A file with these words is not UTF-8.
    """
    for entry in sorted(root.iterdir()):
        if entry.is_dir():
            is_other = entry.is_symlink() or entry.name.startswith(".") or entry.name in _FOLDERS_PASSED_OVER
            if not is_other and not (entry / "pyvenv.cfg").exists():
                yield from python_files(entry, *words)
        elif entry.suffix == ".py" and entry.is_file():
            content = entry.read_bytes()
            if all(word.encode() in content for word in words):
                try:
                    yield entry, content.decode()
                except UnicodeDecodeError as error:
                    raise DeclarationError(f"{entry}: a file that declares views is UTF-8, and this is not: {error}") from error


class PythonFile:
    """A Python file that declares views, read without running it.

    Parameters
    ----------
    root
        The folder of the project: modules that lie in it are parts of what a function uses.

    Raises
    ------
    DeclarationError
        The file is not Python.
    """

    def __init__(self, path: Path, text: str, root: Path) -> None:
        self.path, self.text, self.root = path, text, root
        try:
            self.tree = ast.parse(text, str(path))
        except SyntaxError as error:
            raise DeclarationError(f"{path}:{error.lineno}: this is no Python: {error.msg}") from error
        self._binders: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in _bound(statement):
                self._binders.setdefault(name, []).append(statement)

    def imported(self, *modules: str) -> dict[str, str]:
        """Imported names of this file that belong to modules, each with its full name."""
        found: dict[str, str] = {}
        for statement in ast.walk(self.tree):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    found[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
            elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
                found |= {alias.asname or alias.name: f"{statement.module}.{alias.name}" for alias in statement.names}
        return {name: full for name, full in found.items() if any(full.startswith(m) or m.startswith(full) for m in modules)}

    def functions(self) -> Iterator[ast.FunctionDef]:
        """Functions of the file that have decorators; only those that it defines at its top."""
        for statement in self.tree.body:
            if isinstance(statement, ast.FunctionDef) and statement.decorator_list:
                yield statement

    def query_of(self, function: ast.FunctionDef, name: str, reads: Iterable[str] | None = None) -> QueryFunction:
        """The query that a function of this file is.

        Parameters
        ----------
        reads
            As declared; found in the text of the function without it.
        """
        used = self._used_by(function)
        parts = [_without_docstring(part) for part in used]
        digest = hashlib.sha256("\n".join(map(ast.unparse, parts)).encode())
        for module in self._modules_in_project(used):
            digest.update(module.encode())
        known = tuple(reads) if reads is not None else _tables_read(used, self._named_elsewhere(used))
        source = ast.get_source_segment(self.text, function) or ast.unparse(function)
        return QueryFunction(name, str(self.path), digest.hexdigest()[:16], known, str(self.root), source)

    def digests(self) -> set[str]:
        """Digests of all queries that functions of this file can be."""
        found = {self.whole("").digest}
        return found | {self.query_of(function, function.name).digest for function in self.functions()}

    def whole(self, name: str, reads: Iterable[str] | None = None) -> QueryFunction:
        """The query of a view that is found only by running the file."""
        digest = hashlib.sha256(ast.unparse(self.tree).encode())
        for module in self._modules_in_project(self.tree.body):
            digest.update(module.encode())
        known = None if reads is None else tuple(reads)
        return QueryFunction(name, str(self.path), digest.hexdigest()[:16], known, str(self.root), self.text)

    def _used_by(self, function: ast.FunctionDef) -> list[ast.stmt]:
        """A function, and the statements of its file that it depends on.

        Those bind names that it uses, directly or through others. Statements that bind no name may do anything, so they
        are always among them.
        """
        found: dict[int, ast.stmt] = {}
        pending: list[ast.stmt] = [_without_decorators(function)]
        pending += [s for s in self.tree.body if not _bound(s) and not _is_text(s) and not _is_own_run(s)]
        while pending:
            part = pending.pop()
            if id(part) in found:
                continue
            found[id(part)] = part
            for node in ast.walk(part):
                if isinstance(node, ast.Name):
                    pending += [s for s in self._binders.get(node.id, ()) if s is not function]
        order = {id(statement): n for n, statement in enumerate(self.tree.body)}
        return sorted(found.values(), key=lambda part: order.get(id(part), len(order)))

    def _named_elsewhere(self, used: Iterable[ast.stmt]) -> set[str]:
        """Names that these statements import from modules of the project."""
        found: set[str] = set()
        for statement in _imports(used):
            if _files_of(statement, self.path, self.root):
                found |= _bound(statement)
        return found

    def _modules_in_project(self, used: Iterable[ast.stmt]) -> list[str]:
        """Texts of modules of the project that statements import, and those import."""
        texts: dict[Path, str] = {}
        pending = [(self.path, list(_imports(used)))]
        while pending:
            importer, statements = pending.pop()
            for statement in statements:
                for path in _files_of(statement, importer, self.root):
                    if path not in texts and path != self.path:
                        texts[path], inner = _parsed(path, path.stat().st_mtime_ns)
                        pending.append((path, list(inner)))
        return [texts[path] for path in sorted(texts)]


@lru_cache(maxsize=256)
def _parsed(path: Path, _changed: int) -> tuple[str, tuple[ast.Import | ast.ImportFrom, ...]]:
    """A module's text without comments, and its imports."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise DeclarationError(f"{path}:{error.lineno}: this is no Python: {error.msg}") from error
    return ast.unparse(tree), tuple(_imports(tree.body))


def _imports(statements: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports of statements, also within functions."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield node


def _files_of(statement: ast.Import | ast.ImportFrom, importer: Path, root: Path) -> list[Path]:
    """Files of the project that an import may run."""
    if isinstance(statement, ast.Import):
        wanted = [alias.name for alias in statement.names]
        starts = [root, importer.parent]
    else:
        module = statement.module or ""
        wanted = [module, *(f"{module}.{alias.name}".strip(".") for alias in statement.names)]
        above = importer.parent
        for _ in range(statement.level - 1):
            above = above.parent
        starts = [above] if statement.level else [root, importer.parent]
    found: dict[Path, None] = {}
    for start in starts:
        for name in filter(None, wanted):
            parts = name.split(".")
            for n in range(len(parts)):
                found[start.joinpath(*parts[: n + 1], "__init__.py")] = None
            found[start.joinpath(*parts[:-1], f"{parts[-1]}.py")] = None
    return [path for path in found if path.is_file()]


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement at the top of a file binds."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    nodes = list(ast.walk(statement))
    functions = {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    return functions | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_own_run(statement: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__"``, which does not run on import."""
    return isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test)


def _without_decorators(function: ast.FunctionDef) -> ast.FunctionDef:
    """A function without its decorators, which are the view's declaration."""
    bare = ast.FunctionDef(**{name: getattr(function, name) for name in function._fields})
    bare.decorator_list = []
    return ast.copy_location(bare, function)


def _without_docstring(statement: ast.stmt) -> ast.stmt:
    if not isinstance(statement, ast.FunctionDef) or not statement.body or not _is_text(statement.body[0]):
        return statement
    bare = ast.FunctionDef(**{name: getattr(statement, name) for name in statement._fields})
    bare.body = statement.body[1:] or [ast.Pass()]
    return ast.copy_location(bare, statement)


def _tables_read(used: Iterable[ast.stmt], elsewhere: set[str]) -> tuple[str, ...] | None:
    """Tables that statements name in ``table(…)`` and ``sql(…)``.

    ``None`` where a name or a text is computed, or a function of another file may read more.
    """
    found: dict[str, str] = {}
    for part in used:
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and node.id in elsewhere and isinstance(node.ctx, ast.Load):
                return None
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in ("table", "sql"):
                continue
            argument = node.args[0] if node.args else None
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                return None
            names = [argument.value] if node.func.attr == "table" else dependencies(argument.value, "the text given to sql()")
            for name in names:
                found.setdefault(name.strip("`").lower(), name.strip("`"))
    return tuple(found.values())


def literal_arguments(call: ast.expr) -> dict[str, object] | None:
    """Keywords of a decorator's call, if all are literals; empty for a decorator without parentheses."""
    if not isinstance(call, ast.Call):
        return {}
    found: dict[str, object] = {}
    for keyword in call.keywords:
        try:
            found[str(keyword.arg)] = ast.literal_eval(keyword.value)
        except ValueError:
            return None
    return None if call.args or any(k.arg is None for k in call.keywords) else found


def full_name(expression: ast.expr, imported: dict[str, str]) -> str:
    """Full name of an imported decorator; empty for any other expression."""
    target = expression.func if isinstance(expression, ast.Call) else expression
    parts: list[str] = []
    while isinstance(target, ast.Attribute):
        parts.insert(0, target.attr)
        target = target.value
    if not isinstance(target, ast.Name) or target.id not in imported:
        return ""
    return ".".join([imported[target.id], *parts])
