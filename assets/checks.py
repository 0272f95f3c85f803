"""Results of checks for Dagster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster import AssetCheckKey, AssetCheckResult, AssetCheckSeverity

from relstate_dagster.assets.metadata import Metadata, markdown_table

if TYPE_CHECKING:
    from relstate_dagster.jobs.api import CheckReport, KeyReport, VerifyReport


def keys_result(key: AssetCheckKey, report: KeyReport) -> AssetCheckResult:
    """Return whether each row of a view has a key of its own."""
    metadata: Metadata = {"duplicated keys": report.duplicated_keys, "view version": report.version}
    passed = report.duplicated_keys == 0
    return AssetCheckResult(asset_key=key.asset_key, check_name=key.name, passed=passed, metadata=metadata)


def declared_result(key: AssetCheckKey, report: CheckReport) -> AssetCheckResult:
    """Return the result of a check that a view declares."""
    metadata: Metadata = {"check": report.check.described, "seconds": round(report.seconds, 3)}
    if report.epoch is not None:
        metadata["epoch"] = report.epoch
    if report.problem is not None:
        metadata["problem"] = report.problem
    else:
        metadata["found"] = report.found
        metadata["failing"] = report.failing
    if report.shown.rows:
        metadata["some that fail"] = markdown_table(report.shown)
    severity = AssetCheckSeverity.WARN if report.check.severity == "warn" else AssetCheckSeverity.ERROR
    return AssetCheckResult(
        asset_key=key.asset_key, check_name=key.name, passed=report.passed, severity=severity, metadata=metadata
    )


def verify_result(key: AssetCheckKey, report: VerifyReport) -> AssetCheckResult:
    """Return the result of a view's comparison with its query run in full."""
    metadata: Metadata = {
        "epoch": report.epoch,
        "missing rows": report.missing_rows,
        "unexpected rows": report.unexpected_rows,
        "seconds": float(report.seconds),
    }
    if report.sampled_keys is not None:
        metadata["sampled keys"] = report.sampled_keys
    if report.missing.rows:
        metadata["some that are missing"] = markdown_table(report.missing)
    if report.unexpected.rows:
        metadata["some that are unexpected"] = markdown_table(report.unexpected)
    if report.problem is not None:
        metadata["problem"] = report.problem
    if report.has_expired and not report.equal:
        metadata["why"] = "its state expires ('state.ttl'): what has expired is no longer retracted"
    severity = AssetCheckSeverity.ERROR if report.is_error else AssetCheckSeverity.WARN
    return AssetCheckResult(
        asset_key=key.asset_key, check_name=key.name, passed=report.equal, severity=severity, metadata=metadata
    )
