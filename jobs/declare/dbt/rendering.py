"""Models rendered without dbt, with ``is_incremental()`` false.

The manifest holds the macros of the project and of its packages. What only dbt knows is undefined and refused by name:
``this``, ``target``, ``execute``, ``run_query``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from relstate_dagster.jobs.declare.dbt.manifest import Manifest, Node, title
from relstate_dagster.state_lib.errors import DeclarationError, first_line

#: Prefixes of the implementations of a macro, the most special one first.
_DIALECTS: Final = {"databricks": ("databricks", "spark", "default"), "spark": ("spark", "default")}
#: Packages of dbt itself, which are one to those who call their macros.
_DBT: Final = ("dbt_databricks", "dbt_spark", "dbt")


def rendered(manifest: Manifest, node: Node) -> str:
    """Text of a model as of its first run, with names of tables in dbt.

    Raises
    ------
    DeclarationError
        It calls what only dbt knows.
    """
    environment = SandboxedEnvironment(undefined=StrictUndefined, extensions=["jinja2.ext.do"])
    context = _Context(manifest, node, environment)
    environment.globals.update(context.globals())
    try:
        return str(environment.from_string(node["raw_code"], globals=context.names(node["package_name"])).render())
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as problem:
        raise DeclarationError(
            f"{title(node)}: its text cannot be rendered without dbt: {first_line(problem)}. Known are ref, source, config, "
            "var, is_incremental and macros that need no connection; leave the model to dbt, and name its location."
        ) from problem


class _Returned(Exception):
    """The value of a macro that returns one."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Config:
    """``config(…)``, which writes nothing, and ``config.get(…)``."""

    def __init__(self, node: Node) -> None:
        self._found = node["config"]

    def __call__(self, *_: object, **__: object) -> str:
        return ""

    def get(self, name: str, default: Any = None) -> Any:
        """A setting of the model."""
        found = self._found.get(name)
        return default if found is None else found

    def require(self, name: str) -> Any:
        """A setting that has to be there."""
        return self._found[name]


class _Context:
    """Names that the text of a model and the macros below it may use."""

    def __init__(self, manifest: Manifest, node: Node, environment: SandboxedEnvironment) -> None:
        self._manifest, self._node, self._environment = manifest, node, environment
        self._macros: Mapping[str, Mapping[str, Any]] = manifest.content.get("macros", {})
        self._packages = {macro["package_name"] for macro in self._macros.values()}

    def globals(self) -> dict[str, Any]:
        """Functions of dbt."""
        return {
            "ref": self._ref,
            "source": self._source,
            "config": _Config(self._node),
            "var": self._var,
            "is_incremental": lambda: False,
            "return": self._return,
            # Spark's names of types are those that dbt's macros ask for.
            "api": {"Column": {"translate_type": str}},
            "exceptions": {"raise_compiler_error": self._refuse},
        }

    def names(self, package: str) -> dict[str, Any]:
        """Macros that a package sees: its own, those of dbt, and packages by name."""
        found: dict[str, Any] = {name: _Package(self, name) for name in self._packages}
        for owner in (*reversed(_DBT), self._manifest.settings["name"], package):
            found |= {macro["name"]: self._macro(macro) for macro in self._of(owner)}
        return {**found, **self.globals(), "adapter": {"dispatch": partial(self._dispatch, package)}}

    def macro(self, package: str, name: str) -> Callable[..., Any] | None:
        """A macro of a package; None if it has none of that name."""
        for owner in _DBT if package == "dbt" else (package,):
            found = self._macros.get(f"macro.{owner}.{name}")
            if found is not None:
                return self._macro(found)
        return None

    def _of(self, package: str) -> Iterator[Mapping[str, Any]]:
        return (macro for macro in self._macros.values() if macro["package_name"] == package)

    def _macro(self, macro: Mapping[str, Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            template = self._environment.from_string(macro["macro_sql"], globals=self.names(macro["package_name"]))
            try:
                return getattr(template.module, macro["name"])(*arguments, **named)
            except _Returned as found:
                return found.value

        return call

    def _dispatch(self, caller: str, name: str, macro_namespace: str | None = None) -> Callable[..., Any]:
        for package in (self._manifest.settings["name"], macro_namespace or caller, "dbt"):
            for prefix in _DIALECTS[self._manifest.content["metadata"]["adapter_type"]]:
                found = self.macro(package, f"{prefix}__{name}")
                if found is not None:
                    return found
        raise LookupError(f"macro {name!r} is not in the manifest")

    @staticmethod
    def _refuse(message: str, *_: object) -> None:
        raise LookupError(message)

    @staticmethod
    def _return(value: Any) -> None:
        raise _Returned(value)

    def _ref(self, *names: str, v: Any = None, version: Any = None) -> str:
        *package, name = names
        wanted = version if v is None else v
        for key in self._node["depends_on"]["nodes"]:
            node = self._manifest.by_id.get(key, {})
            is_of = node.get("resource_type") != "source" and node.get("name") == name
            is_of = is_of and (not package or node["package_name"] == package[0])
            current = node.get("version") if wanted is None else wanted
            if is_of and (wanted is None or str(node.get("version")) == str(current)):
                return self._relation(node)
        raise LookupError(f"ref({', '.join(map(repr, names))}) is not in the manifest")

    def _source(self, source: str, table: str) -> str:
        for key in self._node["depends_on"]["nodes"]:
            node = self._manifest.by_id.get(key, {})
            if node.get("resource_type") == "source" and (node["source_name"], node["name"]) == (source, table):
                return self._relation(node)
        raise LookupError(f"source({source!r}, {table!r}) is not in the manifest")

    def _relation(self, node: Node) -> str:
        # An ephemeral model has no table: it is read by the name of its plain view.
        return str(node.get("relation_name") or self._manifest.name(node))

    def _var(self, name: str, default: Any = None) -> Any:
        found = self._manifest.settings.get("vars") or {}
        own = found.get(self._node["package_name"])
        for scope in (own, found):
            if isinstance(scope, Mapping) and name in scope:
                return scope[name]
        if default is None:
            raise LookupError(f"var({name!r}) has no value in dbt_project.yml")
        return default


class _Package:
    """A package of macros, by whose name they are called."""

    def __init__(self, context: _Context, name: str) -> None:
        self._context, self._name = context, name

    def __getattr__(self, name: str) -> Callable[..., Any]:
        found = self._context.macro(self._name, name)
        if found is None:
            raise AttributeError(f"there is no macro {self._name}.{name}")
        return found
