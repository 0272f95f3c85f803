"""Attributes of views and sources in Dagster, one overridable method each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dagster import (
    AssetKey,
    AssetSpec,
    AutomationCondition,
    CodeReferencesMetadataValue,
    FreshnessPolicy,
    LocalFileCodeReference,
)
from dagster_shared.utils.warnings import disable_dagster_warnings

from relstate_dagster.assets import properties
from relstate_dagster.assets.metadata import Metadata, source_metadata, view_metadata
from relstate_dagster.jobs.declare import Project, SourceDeclaration, ViewDeclaration, normalized_sql
from relstate_dagster.jobs.declare.query_function import Query, digest_text


class RelstateTranslator:
    """Views and sources as asset specs.

    Override a method to change one attribute of all views (or of some of them: each gets the declaration), and
    :meth:`get_asset_spec` or :meth:`get_source_spec` for everything else. What a view depends on, its column lineage and the
    project's key prefix are added to what these return.
    """

    # ------------------------------------------------------------------------------------------------------- views

    def get_asset_spec(self, view: ViewDeclaration, project: Project) -> AssetSpec:
        """Return the spec of a view, without its dependencies."""
        return AssetSpec(
            key=self.get_asset_key(view),
            description=self.get_description(view),
            group_name=self.get_group_name(view),
            owners=self.get_owners(view),
            tags=self.get_tags(view),
            kinds=self.get_kinds(view),
            automation_condition=self.get_automation_condition(view),
            freshness_policy=self.get_freshness_policy(view),
            code_version=self.get_code_version(view, project),
            metadata=self.get_metadata(view, project),
        )

    def get_asset_key(self, view: ViewDeclaration) -> AssetKey:
        """Return the key of a view, without the project's prefix: ``dagster.key``, else its name."""
        return properties.asset_key(view)

    def get_description(self, view: ViewDeclaration) -> str | None:
        """Return what ``COMMENT`` says."""
        return view.comment

    def get_group_name(self, view: ViewDeclaration) -> str | None:
        """Return ``dagster.group``; ``views`` without one."""
        return view.properties.get(properties.GROUP, "views")

    def get_owners(self, view: ViewDeclaration) -> Sequence[str]:
        """Return ``dagster.owners``: e-mail addresses, and teams as ``team:name``."""
        return properties.listed(view, properties.OWNERS)

    def get_tags(self, view: ViewDeclaration) -> Mapping[str, str]:
        """Return ``dagster.tags``."""
        return properties.tags(view)

    def get_kinds(self, view: ViewDeclaration) -> set[str]:
        """Return ``dagster.kinds``; ``spark`` and ``delta`` without any."""
        return set(properties.listed(view, properties.KINDS)) or {"spark", "delta"}

    def get_automation_condition(self, view: ViewDeclaration) -> AutomationCondition[Any] | None:
        """Return ``dagster.automation``: when Dagster brings the view up to date by itself."""
        return properties.automation_condition(view)

    def get_freshness_policy(self, view: ViewDeclaration) -> FreshnessPolicy | None:
        """Return ``dagster.freshness``: how long ago the view may have changed last."""
        return properties.freshness_policy(view)

    def get_code_version(self, view: ViewDeclaration, project: Project) -> str:
        """Digest of the query and its inlined plain views, without comments and white space."""
        inlined = [[name, _normalized(query)] for name, query in sorted(project.inlined(view.name).items())]
        text = json.dumps([_normalized(view.named_query), inlined])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def get_metadata(self, view: ViewDeclaration, project: Project) -> Metadata:
        """Return the query, the refresh policy, and the file and line that declare the view."""
        return {**view_metadata(view), **_code_reference(view.path, view.line, view.name)}

    # ----------------------------------------------------------------------------------------------------- sources

    def get_source_spec(self, source: SourceDeclaration, project: Project) -> AssetSpec | None:
        """Return the spec of a source that Dagster only observes.

        None says that an asset of the code location has the key :meth:`get_source_key`; the project's prefix is not put before
        that. A source that is read but not declared has neither columns nor a file.
        """
        return AssetSpec(
            key=self.get_source_key(source),
            description=self.get_source_description(source),
            group_name=self.get_source_group_name(source),
            owners=self.get_source_owners(source),
            tags=self.get_source_tags(source),
            kinds=self.get_source_kinds(source),
            metadata=self.get_source_metadata(source, project),
        )

    def get_source_key(self, source: SourceDeclaration) -> AssetKey:
        """Return the key of a source, without the project's prefix: ``dagster.key``, else its name."""
        return properties.asset_key(source)

    def get_source_description(self, source: SourceDeclaration) -> str | None:
        """Return what ``COMMENT`` says."""
        return source.comment

    def get_source_group_name(self, source: SourceDeclaration) -> str | None:
        """Return ``sources``."""
        return "sources"

    def get_source_owners(self, source: SourceDeclaration) -> Sequence[str]:
        """Return none."""
        return ()

    def get_source_tags(self, source: SourceDeclaration) -> Mapping[str, str]:
        """Return none."""
        return {}

    def get_source_kinds(self, source: SourceDeclaration) -> set[str]:
        """Return ``delta``, ``iceberg``, or the format of the files in a folder."""
        return {source.file_format or ("iceberg" if source.is_iceberg else "delta")}

    def get_source_metadata(self, source: SourceDeclaration, project: Project) -> Metadata:
        """Columns, key, and place of a source's declaration; nothing without one."""
        if source.name in project.undeclared:
            return {}
        return {**source_metadata(source), **_code_reference(source.path, source.line, source.name)}


def _normalized(query: Query) -> str:
    """A query without comments and white space, or the digest of a function."""
    return normalized_sql(query) if isinstance(query, str) else digest_text(query)


def _code_reference(path: str | None, line: int, name: str) -> Metadata:
    """Link to a file and line.

    ``dagster.link_code_references_to_git`` makes one to a repository of it.
    """
    if path is None or not Path(path).exists():
        return {}
    with disable_dagster_warnings():  # Dagster calls these beta each time that one is made
        reference = LocalFileCodeReference(file_path=str(Path(path).absolute()), line_number=line, label=name)
        return {"dagster/code_references": CodeReferencesMetadataValue(code_references=[reference])}
