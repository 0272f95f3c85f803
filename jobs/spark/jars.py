"""The two Delta jars: fetched once from a Maven repository, checked, and kept in a cache.

Delta's own helper resolves 33 jars (86 MB) through Ivy at every start of a session; a session that is handed
these two as ``spark.jars`` creates, appends, merges and reads change feeds just the same, and starts seconds earlier.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jobs.spark.cache import cache_folder
from state_lib.errors import EnvironmentProblem

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
FETCH_TIMEOUT_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of a Maven repository and the SHA-256 digest its file must have; ``classifier`` as Maven means it."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def repository_path(self) -> str:
        """Path of the jar below the root of any Maven repository."""
        folder = f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}"
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{folder}/{self.artifact}-{self.version}{suffix}.jar"


DELTA_JARS: Final = (
    Jar("io.delta", "delta-spark_4.2_2.13", "4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
    Jar("io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)


def delta_jars() -> list[Path]:
    """Return local files of the two Delta jars, fetching what neither cache holds.

    Raises
    ------
    EnvironmentProblem
        A jar is in no cache and cannot be fetched, or what was fetched has another checksum.
    """
    return [find_jar(jar) or fetch_jar(jar) for jar in DELTA_JARS]


def find_jar(jar: Jar) -> Path | None:
    """Return the jar's file in Maven's local repository or in our cache, or None.

    Our cache is written by `fetch_jar` alone, which renames only checked files into it, so it is trusted as it is;
    Maven's folder is anyone's, so a file there counts only with the right checksum.
    """
    cached = _cached_path(jar)
    if cached.is_file():
        return cached
    in_maven = Path.home() / ".m2" / "repository" / jar.repository_path
    if in_maven.is_file() and _sha256(in_maven) == jar.sha256:
        return in_maven
    return None


def fetch_jar(jar: Jar) -> Path:
    """Fetch a jar into the cache; readers see the whole checked file or none."""
    target = _cached_path(jar)
    url = f"{repository_url()}/{jar.repository_path}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as part:
            temporary = Path(part.name)
            with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_SECONDS) as response:  # noqa: S310 - set by the user
                shutil.copyfileobj(response, part)
    except (urllib.error.URLError, OSError, ValueError) as problem:
        _remove_parts(target)
        raise EnvironmentProblem(
            f"cannot fetch {jar.artifact} {jar.version} from {url}: {problem}. "
            "Set RELSTATE_MAVEN_URL to a Maven repository that this machine reaches (a mirror in ~/.m2/settings.xml "
            f"is honoured too), or put the jar at {target}."
        ) from problem
    found = _sha256(temporary)
    if found != jar.sha256:
        temporary.unlink()
        raise EnvironmentProblem(
            f"{url} gave a file with SHA-256 {found}, but {jar.artifact} {jar.version} has {jar.sha256}. "
            "Check the mirror (RELSTATE_MAVEN_URL, ~/.m2/settings.xml), which may answer with an error page."
        )
    temporary.replace(target)
    return target


def repository_url() -> str:
    """Return the Maven repository to fetch from: the setting, else the user's Maven mirror, else Maven Central."""
    setting = os.environ.get("RELSTATE_MAVEN_URL")
    return (setting or _mirror_in_settings(Path.home() / ".m2" / "settings.xml") or MAVEN_CENTRAL).rstrip("/")


def _mirror_in_settings(settings: Path) -> str | None:
    if not settings.is_file():
        return None
    try:
        root = ET.parse(settings).getroot()  # noqa: S314 - as above
    except ET.ParseError as problem:
        raise EnvironmentProblem(
            f"{settings} is not well-formed XML: {problem}. Repair it or set RELSTATE_MAVEN_URL."
        ) from problem
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        covers = {part.strip() for part in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        url = mirror.findtext("{*}url")
        if url and covers & {"*", "central", "external:*"} and "!central" not in covers:
            return url.strip()
    return None


def _cached_path(jar: Jar) -> Path:
    return cache_folder() / "jars" / jar.repository_path


def _remove_parts(target: Path) -> None:
    for part in target.parent.glob("*.part"):
        part.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
