"""ZooKeeper is taken from a named directory, a package or a download; the message names all ways where there is none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from barnabas.tools.localcluster import jars
from barnabas.tools.localcluster.jars import Jar, NoZooKeeperError, Program, find

JAVA = "/somewhere/java"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Java and without any ZooKeeper."""
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jars.shutil, "which", lambda _: JAVA)


def found(
    tmp_path: Path, *, may_fetch: bool = False, directory: str | None = None
) -> tuple[Program, list[str]]:
    output: list[str] = []
    repository = (tmp_path / "maven").as_uri()
    debian = tmp_path / "debian" / "zookeeper.jar"
    program = find(
        may_fetch=may_fetch, jars=directory, repository=repository, say=output.append, debian=debian
    )
    return program, output


def test_without_java_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars.shutil, "which", lambda _: None)
    with pytest.raises(NoZooKeeperError, match=r"needs Java.*apt-get install.*--zookeeper HOST:PORT"):
        found(tmp_path)


def test_without_zookeeper_the_message_names_every_way(tmp_path: Path) -> None:
    with pytest.raises(NoZooKeeperError) as caught:
        found(tmp_path)
    for way in ("--fetch", "--zookeeper HOST:PORT", "--zookeeper-jars DIR", "apt-get install zookeeper"):
        assert way in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_debians_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "zookeeper.jar").touch()
    program, _ = found(tmp_path)
    assert program.classpath == str(tmp_path / "debian" / "zookeeper.jar")


def test_a_directory_that_is_named_goes_before_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("named", "home/lib"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "zookeeper-3.9.2.jar").touch()
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path / "home"))
    assert found(tmp_path)[0].classpath == f"{tmp_path}/home/lib/*"
    assert found(tmp_path, directory=f"{tmp_path}/named")[0].classpath == f"{tmp_path}/named/*"
    with pytest.raises(NoZooKeeperError, match=r"no zookeeper-\*\.jar in"):
        found(tmp_path, directory=str(tmp_path))


def publish(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put one jar into the repository, and make it the only one that is needed; returns its place there."""
    jar = Jar("org.example", "zookeeper", "1.2", hashlib.sha256(b"good").hexdigest())
    place = tmp_path / "maven" / "org" / "example" / "zookeeper" / "1.2" / "zookeeper-1.2.jar"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    monkeypatch.setattr(jars, "JARS", (jar,))
    return place


def test_what_is_fetched_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = publish(tmp_path, b"good", monkeypatch)
    program, output = found(tmp_path, may_fetch=True)
    assert Path(program.classpath).read_bytes() == b"good"
    assert output == [f"fetching {place.as_uri()}"]
    place.unlink()
    assert found(tmp_path) == (program, [])


def test_a_file_that_is_not_the_expected_one_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, b"bad", monkeypatch)
    with pytest.raises(NoZooKeeperError, match="is not the file that is expected"):
        found(tmp_path, may_fetch=True)
    assert not list((tmp_path / "cache").rglob("*.jar*"))


def test_a_repository_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoZooKeeperError, match=r"cannot fetch file://.*zookeeper"):
        found(tmp_path, may_fetch=True)
