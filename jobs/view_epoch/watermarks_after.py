"""Watermarks of a view's sources, from their logs alone."""

from __future__ import annotations

from relstate_dagster.jobs.catalog.watermarks import Watermarks, WatermarkValue, merged
from relstate_dagster.jobs.plan.closing import closings
from relstate_dagster.jobs.sources.file_layout import struct_of
from relstate_dagster.jobs.view_epoch.inputs import EpochInputs


def watermarks_after(inputs: EpochInputs) -> Watermarks:
    """Watermarks of a view after an epoch, moved on by its sources.

    Only sources are looked at that close groups of some aggregate of the view. Files without statistics of the column say
    nothing, so that less is closed.
    """
    view, sources = inputs.view, inputs.catalog.sources
    declared = {name: sources[name].watermarked for name in view.reads if name in sources}
    columns = {name: [watermark.column] for name, watermark in declared.items() if watermark is not None}
    found = {closing.relation for ways in closings(view.plan, columns).values() for closing in ways} if columns else set()
    moved: dict[str, dict[str, WatermarkValue]] = {}
    for name in found:
        watermark = declared[name]
        assert watermark is not None
        fields = struct_of(inputs.source(name).pin.schema_json).fields
        (column,) = (f for f in fields if f.name.lower() == watermark.column.lower())
        known = [file.upper[column.name] for file in inputs.source(name).files.files if column.name in file.upper]
        value = watermark.after(max(known)) if known else None
        if value is not None:
            moved[name] = {column.name: WatermarkValue(value, column.dataType.simpleString())}
    return merged(view.watermarks, moved) if moved else view.watermarks
