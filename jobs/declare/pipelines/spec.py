"""``spark-pipeline.yml``: the files of a pipeline, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from relstate_dagster.jobs.declare.session_settings import MEANING
from relstate_dagster.state_lib.errors import DeclarationError

_FILES: Final = ("spark-pipeline.yaml", "spark-pipeline.yml")
_FIELDS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")


@dataclass(frozen=True)
class PipelineSpec:
    """A pipeline's folder, files and settings.

    Attributes
    ----------
    qualifiers
        Names before a dataset's own name that mean this pipeline's catalog and database, in lower case.
    """

    root: Path
    files: tuple[Path, ...]
    configuration: Mapping[str, str] = field(default_factory=dict)
    qualifiers: tuple[str, ...] = ()


def spec_file(root: Path) -> Path | None:
    """The file that makes a folder a pipeline; None without one."""
    return next((root / name for name in _FILES if (root / name).is_file()), None)


def read_spec(path: Path) -> PipelineSpec:
    """Read a pipeline's file.

    Raises
    ------
    DeclarationError
        It is no YAML, has an unknown field, or names no files.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise DeclarationError(f"{path}: this is no YAML: {error}") from error
    if not isinstance(content, dict):
        raise DeclarationError(f"{path}: a pipeline's file has the fields {', '.join(_FIELDS)}.")
    unknown = [str(name) for name in content if name not in _FIELDS]
    if unknown:
        raise DeclarationError(f"{path}: the field {', '.join(unknown)} is unknown; there are {', '.join(_FIELDS)}.")
    root = path.parent.resolve()
    configuration = content.get("configuration") or {}
    check_settings(configuration, str(path))
    catalog, database = content.get("catalog"), content.get("database", content.get("schema"))
    qualifiers = [f"{catalog}.{database}"] if catalog and database else []
    qualifiers += [str(database)] if database else []
    return PipelineSpec(
        root, tuple(_files(path, root, content.get("libraries") or ())), configuration, tuple(q.lower() for q in qualifiers)
    )


def check_settings(configuration: Any, where: str) -> None:
    """Check that settings leave the meaning of queries alone.

    Raises
    ------
    DeclarationError
        One decides what queries mean, and has another value than the warehouse's sessions.
    """
    if not isinstance(configuration, Mapping):
        raise DeclarationError(f"{where}: the configuration is a mapping of Spark settings.")
    for name, ours in MEANING.items():
        value = configuration.get(name)
        if value is not None and str(value).lower() != ours.lower():
            raise DeclarationError(
                f"{where}: {name} = {value} changes what queries mean, and is set for the whole warehouse here ({ours}): leave "
                "it out"
            )


def _files(path: Path, root: Path, libraries: Any) -> list[Path]:
    found: dict[Path, None] = {}
    for library in libraries:
        try:
            pattern = str(library["glob"]["include"])
        except (KeyError, TypeError) as error:
            raise DeclarationError(f"{path}: a library is written as glob: {{include: transformations/**}}.") from error
        prefix = pattern.removesuffix("/**")
        if any(sign in prefix for sign in "*?["):
            raise DeclarationError(f"{path}: {pattern}: name a file, or a folder as folder/**, as Spark takes it.")
        pattern = pattern if prefix == pattern else f"{pattern}/*"
        for file in sorted(root.glob(pattern)):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            if file.suffix not in (".py", ".sql"):
                raise DeclarationError(f"{file}: a pipeline's files are Python and SQL.")
            found[file] = None
    return list(found)
