"""Lags of views in Prometheus' format, and an endpoint for all metrics of a process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.engine.instants import utc_now
from relstate_dagster.jobs.run.lag import view_lags
from relstate_dagster.state_lib.errors import DeclarationError, EnvironmentProblem, RelstateError
from relstate_dagster.state_lib.lake.table import DeltaError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily

#: Metrics that the catalog and logs give, with their labels besides ``warehouse``.
LAGS: Final = {
    "relstate_catalog_readable": ((), "1 if the catalog and the logs of sources can be read."),
    "relstate_view_unread_commits": (
        ("view", "relation"),
        "Commits of a source, or epochs of a view below, that the view has not read.",
    ),
    "relstate_view_epoch_age_seconds": (("view",), "Seconds since the instant of the view's last epoch."),
    "relstate_view_behind": (("view",), "1 if the next run would change the view."),
    "relstate_view_left_behind": (("view",), "1 if the last run that tried could not compute the view."),
}
_EXTRA: Final = "metrics need the extra of that name: pip install 'relstate-dagster[metrics]'"
_log = logging.getLogger("relstate")


class LagCollector:
    """Reads the lags of warehouses' views whenever Prometheus asks."""

    def __init__(self, *roots: str) -> None:
        self.roots = list(roots)

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing: a registry would read the catalogs to learn names."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metrics of this moment."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - where it is installed

        found = {n: GaugeMetricFamily(n, text, labels=("warehouse", *labels)) for n, (labels, text) in LAGS.items()}

        for root in self.roots:
            for name, amount, *labels in _lags(root):
                found[name].add_metric((root, *labels), amount)
        yield from found.values()


def _lags(root: str) -> Iterator[tuple[str, float, str] | tuple[str, float, str, str] | tuple[str, float]]:
    """Metrics of a warehouse: name, amount, and values of labels."""
    try:
        # Opened each time: a warehouse remembers what it has read.
        lags = view_lags(Warehouse(root), utc_now())
    except (RelstateError, DeltaError, OSError) as error:
        _log.warning("metrics of %s cannot be read: %s", root, error)
        yield "relstate_catalog_readable", 0
        return
    yield "relstate_catalog_readable", 1
    for lag in lags:
        for relation, commits in lag.unread.items():
            yield "relstate_view_unread_commits", commits, lag.view, relation
        if lag.age_seconds is not None:
            yield "relstate_view_epoch_age_seconds", lag.age_seconds, lag.view
        yield "relstate_view_behind", lag.is_behind, lag.view
        yield "relstate_view_left_behind", lag.is_left_behind, lag.view


def lags_text(warehouse: Warehouse) -> str:
    """The lags of a warehouse's views as text.

    Raises
    ------
    EnvironmentProblem : the extra is not installed.
    """
    registry = _lags_alone(warehouse)
    from prometheus_client import generate_latest  # noqa: PLC0415 - where it is installed

    return generate_latest(registry).decode()


def serve_lags(warehouse: Warehouse, address: str) -> Callable[[], None]:
    """Serve the lags of a warehouse's views over HTTP; returns what ends that.

    Raises
    ------
    DeclarationError : the address is none of this machine, or is in use.
    EnvironmentProblem : the extra is not installed.
    """
    return _served(address, "--serve", _lags_alone(warehouse))


def _lags_alone(warehouse: Warehouse) -> CollectorRegistry:
    """A registry with the lags of a warehouse's views."""
    try:
        from prometheus_client import CollectorRegistry  # noqa: PLC0415 - where it is installed
    except ImportError as missing:
        raise EnvironmentProblem(_EXTRA) from missing
    registry = CollectorRegistry()
    registry.register(LagCollector(warehouse.root))
    return registry


class _Endpoint:
    """The endpoint of this process, its provider of meters, and the warehouses that it knows."""

    def __init__(self, address: str, setting: str) -> None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415 - where it is installed
        from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider  # noqa: PLC0415 - as above
        from prometheus_client import REGISTRY  # noqa: PLC0415 - as above

        self.provider: MeterProvider = SdkMeterProvider([PrometheusMetricReader()])
        self._lags = LagCollector()
        REGISTRY.register(self._lags)
        try:
            _served(address, setting, REGISTRY)
        except DeclarationError as error:
            # The views matter more: another process of this machine serves its own metrics there.
            _log.warning("%s; this process records its metrics and serves them nowhere", error)

    def knows(self, warehouse: Warehouse) -> None:
        """Serve the lags of a warehouse as well."""
        if warehouse.root not in self._lags.roots:
            self._lags.roots.append(warehouse.root)


_endpoints: dict[str, _Endpoint] = {}


def served_meters(address: str, setting: str, warehouse: Warehouse) -> MeterProvider:
    """The provider of meters whose metrics this process serves at an address.

    Raises
    ------
    DeclarationError : it is no address.
    EnvironmentProblem : the extra is not installed.
    """
    _split(address, setting)
    try:
        endpoint = _endpoints.get(address) or _endpoints.setdefault(address, _Endpoint(address, setting))
    except ImportError as missing:
        raise EnvironmentProblem(f"{setting}={address}: {_EXTRA}") from missing
    endpoint.knows(warehouse)
    return endpoint.provider


def _split(address: str, setting: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise DeclarationError(f"{setting} {address}: write HOST:PORT, as in 127.0.0.1:9464")
    return host.strip("[]"), int(port)


def _served(address: str, setting: str, registry: CollectorRegistry) -> Callable[[], None]:
    from prometheus_client import start_http_server  # noqa: PLC0415 - where it is installed

    host, port = _split(address, setting)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise DeclarationError(f"{setting} {address}: cannot listen there: {error}") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
