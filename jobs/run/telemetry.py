"""Metrics and spans of runs, by OpenTelemetry: the extra ``relstate-dagster[metrics]``.

The command line, scripts, the server, Dagster and Python all go through :class:`.jobs.run.runner.EpochRunner`. Its reports are
recorded here, and nothing else is asked, so an epoch does no work for metrics. Without OpenTelemetry nothing is recorded; with
it, its providers decide what is exported. If ``RELSTATE_METRICS_ADDRESS`` is set, this process serves its metrics itself.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.run.prometheus import served_meters
from relstate_dagster.jobs.view_epoch.reports import ViewReport

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

#: Where this process serves its metrics, as ``127.0.0.1:9464``.
METRICS_ADDRESS: Final = "RELSTATE_METRICS_ADDRESS"
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
_METER: Final = "relstate"
_log = logging.getLogger("relstate")
#: Upper bounds of the buckets of seconds: warm epochs take tenths of one, backfills many minutes.
_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
#: How long the end of a run waits for what exports, since the process may end right after it.
_FLUSH_MILLISECONDS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Metric:
    """An instrument: its kind, unit, attributes besides ``warehouse`` and ``view``, and meaning."""

    kind: Kind
    unit: str
    attributes: tuple[str, ...]
    text: str


METRICS: Final[Mapping[str, Metric]] = {
    "relstate.epochs": Metric(
        "counter", "{epoch}", ("outcome", "strategy"), "Epochs of views: changed, unchanged, repaired or failed."
    ),
    "relstate.failures": Metric(
        "counter", "{epoch}", (), "Epochs that left the view behind, by itself or waiting for another."
    ),
    "relstate.epoch.duration": Metric("histogram", "s", ("strategy",), "Seconds of a view's epoch."),
    "relstate.step.duration": Metric("histogram", "s", ("step",), "Seconds of a step of it."),
    "relstate.rows.in": Metric("counter", "{row}", ("relation", "change"), "Rows inserted and deleted in what it reads."),
    "relstate.rows.out": Metric("counter", "{row}", ("change",), "Rows inserted and deleted in the published view."),
    "relstate.rows.late": Metric("counter", "{row}", (), "Rows that came too late and changed nothing."),
    "relstate.records.malformed": Metric("counter", "{record}", (), "Records of files that are no rows."),
    "relstate.read": Metric("counter", "By", (), "Bytes of the files that its changes are in."),
    "relstate.state.written": Metric("counter", "{row}", (), "Rows appended to its state."),
    "relstate.state.rows": Metric("gauge", "{row}", (), "Rows of its state after the epoch."),
    "relstate.state.size": Metric("gauge", "By", (), "Bytes of its state after the epoch."),
    "relstate.spark.jobs": Metric("counter", "{job}", (), "Spark jobs of its epochs."),
    "relstate.last.epoch": Metric("gauge", "{epoch}", (), "The number of the last epoch that it has reached."),
}


class Recorder:
    """Records reports by the instruments of a meter and the spans of a tracer."""

    def __init__(self, meters: MeterProvider, tracers: TracerProvider) -> None:
        self._meters, self._tracers = meters, tracers
        meter = meters.get_meter(_METER)
        make: dict[str, Callable[..., Any]] = {
            "counter": meter.create_counter,
            "gauge": meter.create_gauge,
            "histogram": lambda *args, **given: meter.create_histogram(
                *args, explicit_bucket_boundaries_advisory=_SECONDS, **given
            ),
        }
        self._by_name = {name: make[m.kind](name, unit=m.unit, description=m.text) for name, m in METRICS.items()}
        self._tracer = tracers.get_tracer(_METER)

    def run(self, warehouse: str, run_id: str, reports: Generator[ViewReport]) -> Generator[ViewReport]:
        """Record the reports of a run as they pass, and its span once it ends."""
        span = self._tracer.start_span("relstate.run", attributes={"relstate.warehouse": warehouse, "relstate.run_id": run_id})
        try:
            for report in reports:
                self.record(warehouse, report, span)
                yield report
        except Exception as error:
            self._fail(span, str(error))
            raise
        finally:
            reports.close()
            span.end()
            self._flush()

    def record(self, warehouse: str, report: ViewReport, parent: Span) -> None:
        """Record one view in one epoch, which has just ended."""
        of_view = {"warehouse": warehouse, "view": report.view}
        outcome = _outcome(report)
        self._add("relstate.epochs", 1, of_view, outcome=outcome, strategy=report.strategy)
        if report.problem is None:
            self._set("relstate.last.epoch", report.epoch, of_view)
        else:
            self._add("relstate.failures", 1, of_view)
        if report.seconds:
            self._observe("relstate.epoch.duration", sum(report.seconds.values()), of_view, strategy=report.strategy)
        for step, seconds in report.seconds.items():
            self._observe("relstate.step.duration", seconds, of_view, step=step)
        for relation, flow in report.rows_in.items():
            for change, rows in zip(("inserted", "deleted"), flow, strict=True):
                self._add("relstate.rows.in", rows, of_view, relation=relation, change=change)
        for name, amount, attributes in (
            ("relstate.rows.out", report.rows_inserted, {"change": "inserted"}),
            ("relstate.rows.out", report.rows_deleted, {"change": "deleted"}),
            ("relstate.rows.late", report.late_rows, {}),
            ("relstate.records.malformed", report.malformed_records, {}),
            ("relstate.read", report.bytes_in, {}),
            ("relstate.state.written", report.state_rows_written, {}),
            ("relstate.spark.jobs", report.spark_jobs or 0, {}),
        ):
            self._add(name, amount, of_view, **attributes)
        for name, size in (("relstate.state.rows", report.state_rows), ("relstate.state.size", report.state_bytes)):
            if size is not None:
                self._set(name, size, of_view)
        self._spans(report, outcome, parent)

    def _spans(self, report: ViewReport, outcome: str, parent: Span) -> None:
        """Spans of a view's epoch and its steps, which end now."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - where it is installed

        ends = time.time_ns()
        begins = ends - sum(map(_nanoseconds, report.seconds.values()))
        attributes: dict[str, str | int | tuple[str, ...]] = {
            "relstate.view": report.view,
            "relstate.epoch": report.epoch,
            "relstate.strategy": report.strategy,
            "relstate.outcome": outcome,
            "relstate.rows_inserted": report.rows_inserted,
            "relstate.rows_deleted": report.rows_deleted,
            "relstate.stages": report.stages,
        }
        span = self._tracer.start_span("relstate.view", set_span_in_context(parent), attributes=attributes, start_time=begins)
        for step, seconds in report.seconds.items():
            of_step = self._tracer.start_span(
                f"relstate.{step}", set_span_in_context(span), attributes={"relstate.view": report.view}, start_time=begins
            )
            begins += _nanoseconds(seconds)
            of_step.end(begins)
        if report.problem is not None:
            self._fail(span, report.problem)
        span.end(ends)

    @staticmethod
    def _fail(span: Span, why: str) -> None:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - where it is installed

        span.set_status(Status(StatusCode.ERROR, why))

    def _add(self, name: str, amount: int, of_view: Mapping[str, str], **attributes: str) -> None:
        # A counter that was never added to is not exported: rates begin with the first run, and not with the first row.
        self._by_name[name].add(amount, {**of_view, **attributes})

    def _set(self, name: str, amount: int, of_view: Mapping[str, str]) -> None:
        self._by_name[name].set(amount, of_view)

    def _observe(self, name: str, seconds: float, of_view: Mapping[str, str], **attributes: str) -> None:
        self._by_name[name].record(seconds, {**of_view, **attributes})

    def _flush(self) -> None:
        """Have providers export now: a command ends its process without the handlers of Python's exit."""
        for provider in (self._meters, self._tracers):
            flush = getattr(provider, "force_flush", None)
            if flush is not None:
                try:
                    flush(_FLUSH_MILLISECONDS)
                except Exception as error:  # what exports is the user's, and the views are up to date
                    _log.warning("metrics of this run may be lost: %s", error)


_recorders: dict[tuple[int, int], Recorder] = {}


def recorded(warehouse: Warehouse, run_id: str, reports: Generator[ViewReport]) -> Generator[ViewReport]:
    """Pass the reports of a run on, recorded where OpenTelemetry is installed."""
    providers = _providers(warehouse)
    if providers is None:
        yield from reports
        return
    key = (id(providers[0]), id(providers[1]))
    recorder = _recorders.get(key) or _recorders.setdefault(key, Recorder(*providers))
    yield from recorder.run(warehouse.root, run_id, reports)


def _providers(warehouse: Warehouse) -> tuple[MeterProvider, TracerProvider] | None:
    """The providers of this process; ``None`` without OpenTelemetry."""
    address = os.environ.get(METRICS_ADDRESS)
    served = served_meters(address, METRICS_ADDRESS, warehouse) if address else None
    try:
        from opentelemetry import metrics, trace  # noqa: PLC0415 - where it is installed
    except ImportError:
        return None
    return served or metrics.get_meter_provider(), trace.get_tracer_provider()


def _outcome(report: ViewReport) -> str:
    if report.problem is not None:
        return "failed"
    return "repaired" if report.is_repair else "unchanged" if report.skipped else "changed"


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
