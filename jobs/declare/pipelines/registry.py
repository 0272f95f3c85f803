"""The registry that Spark's own decorators fill while a Python file runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.pipelines.flow import Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    get_active_graph_element_registry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import Output

from relstate_dagster.jobs.declare.pipelines.expectations import EXPECTATIONS, REFUSED_EXPECTATIONS, expectations_of
from relstate_dagster.state_lib.errors import DeclarationError

#: The attribute of a function that holds its expectations.
EXPECTED: Final = "__relstate_expectations__"


class CollectingRegistry(GraphElementRegistry):
    """Keeps what a file defines; calls no function of it."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.flows: list[Flow] = []
        self.cdc_flows: list[dict[str, Any]] = []

    def register_output(self, output: Output) -> None:
        """Keep a dataset."""
        self.outputs.append(output)

    def register_flow(self, flow: Flow) -> None:
        """Keep a flow, whose function is called when its view is planned."""
        self.flows.append(flow)

    def register_auto_cdc_flow(self, flow: Any) -> None:
        """Keep the arguments of a flow of changes."""
        self.cdc_flows.append(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Refuse SQL, which is read from files here."""
        raise DeclarationError(f"{file_path}: SQL of a pipeline is read from its files.")


@contextmanager
def registering() -> Iterator[CollectingRegistry]:
    """Collect what files define by Spark's decorators as they run within."""
    registry = CollectingRegistry()
    module: Any = importlib.import_module("pyspark.pipelines")
    ours: dict[str, Any] = {name: _expectation(name) for name in (*EXPECTATIONS, *REFUSED_EXPECTATIONS)}
    # Spark's own makes columns of Spark Connect, whose packages need not be there.
    ours["create_auto_cdc_flow"] = _create_auto_cdc_flow
    before = {name: vars(module).get(name) for name in ours}
    vars(module).update(ours)
    try:
        with graph_element_registration_context(registry):
            yield registry
    finally:
        for name, value in before.items():
            if value is None:
                delattr(module, name)
            else:
                setattr(module, name, value)


def _create_auto_cdc_flow(
    target: str,
    source: str,
    keys: Any,
    sequence_by: Any,
    apply_as_deletes: Any = None,
    column_list: Any = None,
    except_column_list: Any = None,
    stored_as_scd_type: Any = None,
    name: str | None = None,
) -> None:
    """Take an auto CDC flow, as the function of this name of Spark's."""
    arguments = {
        "target": target,
        "source": source,
        "keys": keys,
        "sequence_by": sequence_by,
        "apply_as_deletes": apply_as_deletes,
        "column_list": column_list,
        "except_column_list": except_column_list,
        "stored_as_scd_type": stored_as_scd_type,
        "name": name,
        "line": sys._getframe(1).f_lineno,
    }
    registry: Any = get_active_graph_element_registry()
    registry.register_auto_cdc_flow(arguments)


def _expectation(decorator: str) -> Callable[..., Callable[[Any], Any]]:
    def given(*arguments: Any) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            expected = dict(getattr(function, EXPECTED, {}))
            expected.update(expectations_of(decorator, arguments, function.__name__))
            setattr(function, EXPECTED, expected)
            return function

        return decorate

    return given
