"""ZooKeeper is taken from a named directory, a package or a download; the message names all ways where there is none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from barnabas.tools.localcluster.jars import Jar, NoZooKeeperError, Program, find

JAVA = "/somewhere/java"
NEEDED = Jar("org.example", "zookeeper", "1.2", hashlib.sha256(b"good").hexdigest())


def program_in(
    tmp_path: Path,
    *,
    may_fetch: bool = False,
    directory: str | None = None,
    java: str | None = JAVA,
    environment: dict[str, str] | None = None,
) -> tuple[Program, list[str]]:
    """The program on a machine without any ZooKeeper but what a test puts there, and what is told meanwhile."""
    output: list[str] = []
    program = find(
        may_fetch=may_fetch,
        jars=directory,
        repository=(tmp_path / "maven").as_uri(),
        say=output.append,
        debian=tmp_path / "debian" / "zookeeper.jar",
        needed=(NEEDED,),
        environment={"XDG_CACHE_HOME": str(tmp_path / "cache"), **(environment or {})},
        which=lambda _: java,
    )
    return program, output


def test_without_java_the_message_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NoZooKeeperError, match=r"needs Java.*apt-get install.*--zookeeper HOST:PORT"):
        program_in(tmp_path, java=None)


def test_without_zookeeper_the_message_names_every_way(tmp_path: Path) -> None:
    with pytest.raises(NoZooKeeperError) as caught:
        program_in(tmp_path)
    for way in ("--fetch", "--zookeeper HOST:PORT", "--zookeeper-jars DIR", "apt-get install zookeeper"):
        assert way in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_debians_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "zookeeper.jar").touch()
    program, _ = program_in(tmp_path)
    assert program.classpath == str(tmp_path / "debian" / "zookeeper.jar")


def test_a_directory_that_is_named_goes_before_all_others(tmp_path: Path) -> None:
    for name in ("named", "home/lib"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "zookeeper-3.9.2.jar").touch()
    home = {"ZOOKEEPER_HOME": str(tmp_path / "home")}
    assert program_in(tmp_path, environment=home)[0].classpath == f"{tmp_path}/home/lib/*"
    assert (
        program_in(tmp_path, directory=f"{tmp_path}/named", environment=home)[0].classpath
        == f"{tmp_path}/named/*"
    )
    with pytest.raises(NoZooKeeperError, match=r"no zookeeper-\*\.jar in"):
        program_in(tmp_path, directory=str(tmp_path))


def publish(tmp_path: Path, content: bytes) -> Path:
    """Put the jar that is needed into the repository; returns its place there."""
    place = tmp_path / "maven" / "org" / "example" / "zookeeper" / "1.2" / "zookeeper-1.2.jar"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    return place


def test_what_is_fetched_is_kept(tmp_path: Path) -> None:
    place = publish(tmp_path, b"good")
    program, output = program_in(tmp_path, may_fetch=True)
    assert Path(program.classpath).read_bytes() == b"good"
    assert output == [f"fetching {place.as_uri()}"]
    place.unlink()
    assert program_in(tmp_path) == (program, [])


def test_a_file_that_is_not_the_expected_one_is_not_kept(tmp_path: Path) -> None:
    publish(tmp_path, b"bad")
    with pytest.raises(NoZooKeeperError, match="is not the file that is expected"):
        program_in(tmp_path, may_fetch=True)
    assert not list((tmp_path / "cache").rglob("*.jar*"))


def test_a_repository_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoZooKeeperError, match=r"cannot fetch file://.*zookeeper"):
        program_in(tmp_path, may_fetch=True)
