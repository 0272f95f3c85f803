"""Jars besides Spark's own: fetched once from Maven, checked, and cached.

Delta's own helper resolves 33 jars (86 MB) through Ivy at every start of a session. A session that gets these two as
``spark.jars`` creates, appends, merges and reads change feeds in the same way, and starts seconds earlier.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.jobs.engine.spark_release import hadoop_release, spark_release
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.storage import Store

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
FETCH_TIMEOUT_SECONDS: Final = 120
_FETCHES: Final = 4


@dataclass(frozen=True, slots=True)
class Jar:
    """One artifact of a Maven repository and its SHA-256 digest.

    ``classifier`` as Maven means it.
    """

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


#: Digests of Delta's jar, by the release of Spark that it is compiled for.
_DELTA_SHA256: Final = {
    "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
    "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
}
_DELTA_STORAGE: Final = Jar(
    "io.delta", "delta-storage", "4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"
)
#: Digests of Hadoop's jars for S3 and for Azure Storage, by the release of Hadoop in Spark.
_HADOOP_SHA256: Final = {
    "3.4.1": (
        "01334a07e179cae2b7e251f24857f11e3759108c9d6a79dcbe362a4295227da2",
        "d1ccb21546072acb55da9cf29bbf353749d8864ae96e9d9d2b6a06533b979c94",
    ),
    "3.4.2": (
        "d2d24e6b715b5656b9d238bf13b6682a07e2004dd36aad74a73aeb854319f4d9",
        "f02ab756037abaecc45ea1869144ad3a69e25ccd84062bc37805837ca254e21c",
    ),
    "3.5.0": (
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
        "220b5db238b82437960e4b81c7e3eefa4eff2a03ad502887497f11d0ad86e663",
    ),
}


def _sdk(artifact: str, sha256: str) -> Jar:
    return Jar("software.amazon.awssdk", artifact, "2.35.4", sha256)


#: What hadoop-aws needs: 13 MB of the SDK's modules instead of its bundle of 600 MB. Netty and the HTTP client are in Spark.
_S3A: Final = (
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
    _sdk("annotations", "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8"),
    _sdk("apache-client", "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740"),
    _sdk("arns", "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380"),
    _sdk("auth", "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994"),
    _sdk("aws-core", "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623"),
    _sdk("aws-query-protocol", "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f"),
    _sdk("aws-xml-protocol", "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d"),
    _sdk("checksums", "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948"),
    _sdk("checksums-spi", "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec"),
    _sdk("crt-core", "2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62"),
    _sdk("endpoints-spi", "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00"),
    Jar(
        "software.amazon.eventstream",
        "eventstream",
        "1.0.1",
        "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822",
    ),
    _sdk("http-auth", "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491"),
    _sdk("http-auth-aws", "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01"),
    _sdk("http-auth-aws-eventstream", "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd"),
    _sdk("http-auth-spi", "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c"),
    _sdk("http-client-spi", "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb"),
    _sdk("identity-spi", "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf"),
    _sdk("json-utils", "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc"),
    _sdk("metrics-spi", "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487"),
    _sdk("netty-nio-client", "b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc"),
    _sdk("profiles", "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8"),
    _sdk("protocol-core", "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5"),
    Jar(
        "org.reactivestreams",
        "reactive-streams",
        "1.0.4",
        "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28",
    ),
    _sdk("regions", "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca"),
    _sdk("retries", "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469"),
    _sdk("retries-spi", "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd"),
    _sdk("s3", "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc"),
    _sdk("s3-transfer-manager", "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476"),
    _sdk("sdk-core", "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4"),
    _sdk("sts", "8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2"),
    _sdk("third-party-jackson-core", "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea"),
    _sdk("utils", "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8"),
    _sdk("utils-lite", "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be"),
)


#: What hadoop-azure needs besides what Spark has.
_AZURE: Final = (
    Jar(
        "org.wildfly.openssl",
        "wildfly-openssl",
        "1.1.3.Final",
        "4e7d50a877822ba7561fa6a0109691b30b23a784eba3f3f8fbbf5ea866500786",
    ),
)

#: Google's connector, with all that it needs inside. Of later releases 4.0.8 and 4.0.9 have no such jar at Maven Central.
_GCS: Final = (
    Jar(
        "com.google.cloud.bigdataoss",
        "gcs-connector",
        "4.0.3",
        "df458ae2de72c9b8a4e7f1256280a5ff73b293af53319c5c6c2e945155358c9e",
        "shaded",
    ),
)

_CLIENTS: Final[Mapping[Store, Sequence[Jar]]] = {"s3": _S3A, "azure": _AZURE, "gcs": _GCS}
#: Hadoop's own part of a client, and its place among the digests.
_HADOOP_CLIENTS: Final[Mapping[Store, tuple[str, int]]] = {"s3": ("hadoop-aws", 0), "azure": ("hadoop-azure", 1)}


def needed_delta_jars() -> tuple[Jar, ...]:
    """The two Delta jars that go with the installed Spark.

    Raises
    ------
    EnvironmentProblem
        The installed Spark is none that Delta has jars for here.
    """
    release = spark_release()
    sha256 = _DELTA_SHA256.get(release)
    if sha256 is None:
        raise EnvironmentProblem(
            f"Spark {release} is installed; install one of {', '.join(_DELTA_SHA256)}: "
            "`pip install 'pyspark>=4.0.1,<4.3'` (and unset SPARK_HOME where it names another Spark)"
        )
    return (Jar("io.delta", f"delta-spark_{release}_2.13", _DELTA_STORAGE.version, sha256), _DELTA_STORAGE)


def needed_jars_of(store: Store) -> tuple[Jar, ...]:
    """The jars with which the installed Spark reads an object store.

    Raises
    ------
    EnvironmentProblem
        The installed Spark brings a release of Hadoop whose client is not known here.
    """
    others = tuple(_CLIENTS[store])
    if store not in _HADOOP_CLIENTS:
        return others
    artifact, place = _HADOOP_CLIENTS[store]
    release = hadoop_release()
    if release not in _HADOOP_SHA256:
        raise EnvironmentProblem(
            f"the installed Spark brings Hadoop {release}, for which no checksum of {artifact} is known "
            f"(those of {', '.join(_HADOOP_SHA256)} are): install another patch release of Spark"
        )
    return (Jar("org.apache.hadoop", artifact, release, _HADOOP_SHA256[release][place]), *others)


def delta_jars() -> list[Path]:
    """Return local files of the two Delta jars, fetching what neither cache holds.

    Raises
    ------
    EnvironmentProblem
        A jar is in no cache and cannot be fetched, or what was fetched has another checksum.
    """
    return _found(needed_delta_jars())


def jars_of(store: Store) -> list[Path]:
    """Return local files of the jars with which Spark reads an object store, as :func:`delta_jars`."""
    return _found(needed_jars_of(store))


def has_jars_of(store: Store) -> bool:
    """Whether those are here already: nothing is fetched for tables that there may not be."""
    try:
        return all(find_jar(jar) is not None for jar in needed_jars_of(store))
    except EnvironmentProblem:
        return False


def _found(jars: Sequence[Jar]) -> list[Path]:
    """Local files of jars.

    Those in no cache are fetched, several at a time.
    """
    with ThreadPoolExecutor(_FETCHES) as pool:
        return list(pool.map(lambda jar: find_jar(jar) or fetch_jar(jar), jars))


def find_jar(jar: Jar) -> Path | None:
    """Return the jar's file in Maven's local repository or in our cache, or None.

    Only `fetch_jar` writes our cache, and it renames only checked files into it, so the cache is trusted. Any program may
    write to Maven's folder, so a file there counts only with the right checksum.
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
    """The Maven repository: the setting, else the user's mirror, else Maven Central."""
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
