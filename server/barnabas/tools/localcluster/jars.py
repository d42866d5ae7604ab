"""Location of ZooKeeper's jars on this machine, and their download.

The rule: nothing is fetched unless an option requests it, and a fetched file is used only if its SHA-256 is the expected
one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.defaults import MAVEN_CENTRAL

VERSION = "3.8.4"
"""The version of ZooKeeper that is downloaded: that of Apache Kafka 3.9."""
DEBIAN = Path("/usr/share/java/zookeeper.jar")
"""Debian's; its manifest names the jars that it needs."""
FETCH_SECONDS = 60.0


class Jar(NamedTuple):
    """A file of a Maven repository."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Its file name."""
        return f"{self.name}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Path of the file in a repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.file}"


# the jars that a ZooKeeper server needs, without its administration server and TLS
JARS = (
    Jar("org.apache.zookeeper", "zookeeper", VERSION,
        "2d77b152039e7f85dc5438a9304febff86a2f3e55c88976a8be309af39028e97"),
    Jar("org.apache.zookeeper", "zookeeper-jute", VERSION,
        "93e854b55d731e745bafec187e2e7bf3389fd2a88e2fc8d1a3c1b9110284b284"),
    Jar("org.slf4j", "slf4j-api", "1.7.36",
        "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0"),
    Jar("io.dropwizard.metrics", "metrics-core", "4.1.12.1",
        "cec34936faa625039f4e46123eccaa10a9eb9d9a40c6075830cd81330e259cf9"),
    Jar("org.xerial.snappy", "snappy-java", "1.1.10.5",
        "0f3f1857ed33116583f480b4df5c0218836c47bfbc9c6221c0d73f356decf37b"),
)  # fmt: skip


class NoZooKeeperError(ChildError):
    """ZooKeeper cannot be started here; the text names the way out."""


@dataclass(frozen=True, slots=True)
class Program:
    """A ZooKeeper that can be started."""

    java: str
    classpath: str
    origin: str
    """Place that the program is from, for people."""


def find(
    *,
    may_fetch: bool,
    jars: str | None,
    repository: str = MAVEN_CENTRAL,
    say: Callable[[str], None],
    debian: Path = DEBIAN,
    needed: Sequence[Jar] = JARS,
    environment: Mapping[str, str] = os.environ,
    which: Callable[[str], str | None] = shutil.which,
) -> Program:
    """Find a ZooKeeper: in the directory `jars`, in $ZOOKEEPER_HOME, Debian's, or in the cache, which may be filled.

    Raises NoZooKeeperError.
    """
    java = _java(environment, which)
    if jars is not None:
        return _in_directory(java, Path(jars), f"jars in {jars}")
    home = environment.get("ZOOKEEPER_HOME")
    if home:
        return _in_directory(java, Path(home) / "lib", f"ZOOKEEPER_HOME={home}")
    if debian.exists():
        return Program(java, str(debian), f"Debian's package ({debian})")
    cache = cache_directory(environment)
    if not all((cache / jar.file).exists() for jar in needed):
        if not may_fetch:
            raise NoZooKeeperError(_explanation(cache))
        _fetch(cache, repository, needed, say)
    classpath = ":".join(str(cache / jar.file) for jar in needed)
    return Program(java, classpath, f"ZooKeeper {VERSION} from Maven Central ({cache})")


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of downloaded files: below $XDG_CACHE_HOME or ~/.cache."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "barnabas" / f"zookeeper-{VERSION}"


def _java(environment: Mapping[str, str], which: Callable[[str], str | None]) -> str:
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    path = which(java)
    if path is None:
        raise NoZooKeeperError(
            f"{java} is not there, and ZooKeeper needs Java 8 or newer (Debian: apt-get install "
            "default-jre-headless); or name a ZooKeeper that runs already: --zookeeper HOST:PORT"
        )
    return path


def _in_directory(java: str, directory: Path, origin: str) -> Program:
    if not any(directory.glob("zookeeper-*.jar")):
        raise NoZooKeeperError(f"there is no zookeeper-*.jar in {directory}")
    return Program(java, f"{directory}/*", origin)


def _explanation(cache: Path) -> str:
    return (
        "a cluster needs a ZooKeeper, and there is none here. One of these helps:\n"
        f"  --fetch                  fetch ZooKeeper {VERSION} from Maven Central, once: {len(JARS)} files, 4 MB, to\n"
        f"                           {cache}\n"
        "  --zookeeper HOST:PORT    use one that runs already\n"
        "  --zookeeper-jars DIR     use the jars of one that you have (lib/ of its distribution, or of Kafka 3.9's libs/)\n"
        "  apt-get install zookeeper    Debian's, which is found by itself"
    )


def _fetch(cache: Path, repository: str, needed: Sequence[Jar], say: Callable[[str], None]) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    for jar in needed:
        if (cache / jar.file).exists():
            continue
        url = f"{repository}/{jar.path}"
        say(f"fetching {url}")
        try:
            with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as response:
                content: bytes = response.read()
        except (OSError, urllib.error.URLError) as error:
            raise NoZooKeeperError(f"cannot fetch {url}: {error}") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != jar.sha256:
            raise NoZooKeeperError(f"{url} is not the file that is expected: its SHA-256 is {digest}")
        part = cache / f"{jar.file}.{os.getpid()}"
        part.write_bytes(content)
        part.replace(cache / jar.file)
