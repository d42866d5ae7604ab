"""Objects of a store one call at a time: what is synced and when, what is counted and listed, HDFS without an HDFS."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hdfs_native.fsspec
import numpy as np
import pytest
from pyarrow import fs
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.lake import hdfs, store
from barnabas_pipeline.lake.store import Digesting, Listed, StoreFile, StoreIO, SyncedFile


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The files that were forced to the disk, with how much was in each by then."""
    done: list[tuple[str, int]] = []

    def sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        done.append((path, os.path.getsize(path) if os.path.isfile(path) else -1))

    monkeypatch.setattr(store, "sync", sync)
    return done


# --- local files ------------------------------------------------------------------------------------------------------


def test_a_local_file_is_synced_when_all_of_it_is_there_and_then_its_name_once(
    tmp_path: Path, synced: list[tuple[str, int]]
) -> None:
    path, before = tmp_path / "a" / "b" / "x", descriptors()
    file = SyncedFile(path)
    file.write(b"one")
    assert synced == []
    file.close()
    file.close()
    assert synced == [(str(path), 3), (str(path.parent), -1)]
    assert file.closed
    assert descriptors() == before


def test_a_directory_that_cannot_be_synced_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()

    def sync(descriptor: int) -> None:
        if os.path.isdir(os.readlink(f"/proc/self/fd/{descriptor}")):
            raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(store, "sync", sync)
    with pytest.raises(OSError, match="the disk is broken"):
        SyncedFile(tmp_path / "x").close()
    assert descriptors() == before


def test_a_file_that_is_there_is_written_anew_only_if_that_is_said(tmp_path: Path) -> None:
    io, location = StoreIO({}), f"file://{tmp_path}/x"
    (tmp_path / "x").write_bytes(b"longer than the other")
    with pytest.raises(FileExistsError) as raised:
        io.new_output(location).create()
    assert str(raised.value) == f"Cannot create file, already exists: {location}"
    with io.new_output(location).create(overwrite=True) as stream:
        assert isinstance(stream, SyncedFile)
        stream.write(b"short")
    assert (tmp_path / "x").read_bytes() == b"short"
    assert io.new_output(location).location == location


def test_what_is_not_local_is_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(PyArrowFile, "create", lambda self, overwrite=False: asked.append(overwrite))
    remote = StoreFile("s3://b/x", f"{tmp_path}/b/x", fs.SubTreeFileSystem("/nowhere", fs.LocalFileSystem()))
    remote.create()
    remote.create(overwrite=True)
    assert asked == [False, True]
    assert [*tmp_path.iterdir()] == []


def test_a_location_has_a_file_system_and_a_path_in_it(tmp_path: Path) -> None:
    system, path = StoreIO({}).file_system(f"file://{tmp_path}/x")
    assert isinstance(system, fs.LocalFileSystem)
    assert path == f"{tmp_path}/x"


# --- digests and lists ------------------------------------------------------------------------------------------------


def test_what_is_written_through_is_counted_in_bytes_and_digested_and_closed_once(
    tmp_path: Path, synced: list[tuple[str, int]]
) -> None:
    (tmp_path / "x").write_bytes(b"of before")
    file = Digesting(StoreIO({}), f"file://{tmp_path}/x")
    numbers = np.arange(3, dtype=np.int64)
    assert [file.write(b"abcde"), file.write(memoryview(numbers))] == [5, 24]
    file.flush()
    assert (file.tell(), file.size, file.closed, synced) == (29, 29, False, [])
    file.close()
    file.close()
    assert file.closed
    assert len(synced) == 2
    data = b"abcde" + numbers.tobytes()
    assert (tmp_path / "x").read_bytes() == data
    assert file.sha256 == hashlib.sha256(data).hexdigest()
    assert file.location == f"file://{tmp_path}/x"


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (2 << 20) + 7])
def test_an_object_is_read_back_with_its_size_and_digest(tmp_path: Path, size: int) -> None:
    io, location = StoreIO({}), f"file://{tmp_path}/x"
    data = bytes(n % 251 for n in range(size % 1000)) + b"x" * (size - size % 1000)
    store.write(io, location, data)
    assert store.read(io, location) == data
    assert store.sha256_of(io, location) == (size, hashlib.sha256(data).hexdigest())


def test_an_object_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    for look in (store.read, store.sha256_of):
        with pytest.raises(FileNotFoundError):
            look(StoreIO({}), f"file://{tmp_path}/x")


def test_a_list_has_all_files_below_with_their_times_and_no_directory(tmp_path: Path) -> None:
    names = ["a", "below/b c", "below/deep/d", ".hidden"]
    for number, name in enumerate(names):
        path = tmp_path / "l" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (5, 1_000 + number))
    (tmp_path / "l" / "empty").mkdir()
    (tmp_path / "l2").write_bytes(b"beside")
    found = sorted(store.listing(StoreIO({}), f"file://{tmp_path}/l"), key=lambda one: one.modified)
    assert found == [Listed(f"file://{tmp_path}/l/{name}", 1_000.0 + n) for n, name in enumerate(names)]
    below = [one.location for one in store.listing(StoreIO({}), f"file://{tmp_path}/l/below/deep")]
    assert below == [f"file://{tmp_path}/l/below/deep/d"]


def test_a_file_io_of_somebody_else_cannot_list() -> None:
    with pytest.raises(UsageError) as raised:
        [*store.listing(PyArrowFileIO({}), "s3://b/l")]
    assert str(raised.value) == "PyArrowFileIO cannot list what is below s3://b/l"


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("hdfs://", "hdfs://"),
        ("hdfs:///", "hdfs://"),
        ("s3://b", "s3://b"),
        ("x-y.z+1://b//", "x-y.z+1://b"),
        ("/a:b/c", "file:///a:b/c"),
        ("/s3://b", "file:///s3:/b"),
        ("file:///a/", "file:///a"),
    ],
)
def test_a_url_has_two_slashes_and_none_at_its_end(name: str, location: str) -> None:
    assert store.location_of(name) == location


@pytest.mark.parametrize("name", ["s3:b", "c:/x", "1a://b", "a_b://c"])
def test_what_is_no_url_is_a_path(name: str) -> None:
    assert store.location_of(name) == f"file://{Path(name).absolute()}"


def test_a_location_that_cannot_be_is_told_with_its_name(tmp_path: Path) -> None:
    for name, why in (
        ("file://elsewhere/a", "file://elsewhere/a is on another machine: a file URL is of this one"),
        ("/a/b#c", "Iceberg cannot name files below /a/b#c: no #, ?, % in a path"),
        ("file:///a%3Fb", "Iceberg cannot name files below /a?b: no #, ?, % in a path"),
    ):
        with pytest.raises(UsageError) as raised:
            store.location_of(name)
        assert str(raised.value) == why


@pytest.mark.parametrize("location", ["s3://b/l", "file:/a", "/a", "file", "", "xfile:///a", "file2:///a"])
def test_what_is_not_of_this_machine_has_no_path(location: str) -> None:
    assert store.local_path(location) is None
    assert store.local_path("file:///a/b") == Path("/a/b")


def test_a_name_is_given_to_a_whole_file_that_is_on_the_disk(
    tmp_path: Path, synced: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    location, link = f"file://{tmp_path}/x", os.link

    def linking(source: str, target: str) -> None:
        assert [size for name, size in synced if name == source] == [3]
        assert Path(source).name.startswith(".x.")
        link(source, target)

    monkeypatch.setattr(os, "link", linking)
    assert store.put_if_absent(StoreIO({}), location, b"one") is True
    assert store.put_if_absent(StoreIO({}), location, b"two") is False
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("x", b"one")]


def test_a_name_that_cannot_be_given_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(PermissionError):
        store.put_if_absent(StoreIO({}), f"file://{tmp_path}/x", b"one")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("put", [store.put_if_absent, store.replace])
def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: Any
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "x").write_bytes(b"before")
    monkeypatch.setattr(store, "sync", full)
    with pytest.raises(OSError, match="No space left"):
        put(StoreIO({}), f"file://{tmp_path}/x", b"after")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x", b"before")]


# --- HDFS -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "netloc", "is_installed", "expected"),
    [
        ("hdfs", "h:9", True, "ours of h:9"),
        ("hdfs", None, True, "ours of "),
        ("hdfs", "h:9", False, "libhdfs of hdfs://h:9"),
        ("viewfs", "h:9", True, "libhdfs of viewfs://h:9"),
    ],
)
def test_hdfs_is_reached_by_the_package_for_it_if_that_is_there(
    monkeypatch: pytest.MonkeyPatch, scheme: str, netloc: str | None, is_installed: bool, expected: str
) -> None:
    given = {"dfs.x": "1", "more": "2"}

    def opening(name: str, properties: Any) -> str:
        assert dict(properties) == given
        return f"ours of {name}"

    monkeypatch.setattr(hdfs, "is_installed", lambda: is_installed)
    monkeypatch.setattr(hdfs, "open_hdfs", opening)
    monkeypatch.setattr(
        PyArrowFileIO, "_initialize_hdfs_fs", lambda self, scheme, netloc: f"libhdfs of {scheme}://{netloc}"
    )
    assert StoreIO(given).open_hdfs(scheme, netloc) == expected


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        ("Unable to load libhdfs: no such file", UsageError, "viewfs://h needs a client of HDFS: pip install hdfs-native"),
        ("the namenode is away", OSError, "the namenode is away"),
    ],
)  # fmt: skip
def test_without_a_client_of_hdfs_it_is_said_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, said: str, error: type[Exception], text: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(said)

    monkeypatch.setattr(PyArrowFileIO, "_initialize_hdfs_fs", fail)
    with pytest.raises(error) as raised:
        StoreIO({}).open_hdfs("viewfs", "h")
    assert (type(raised.value), str(raised.value)) == (error, text)


class Client:
    """hdfs-native's, as far as it is asked here; a path that begins with /bad is one that the namenode refuses."""

    made: list[tuple[str, dict[str, str]]]

    def __init__(self, url: str, properties: dict[str, str]) -> None:
        if "nowhere" in url:
            raise RuntimeError("no such name service")
        self.made.append((url, properties))

    def get_file_info(self, path: str) -> Any:
        if path.startswith("/bad"):
            raise RuntimeError(r"RPC error: safe mode\n at org.apache.Hadoop\n")
        return SimpleNamespace(
            path=path, length=7, isdir=False, permission=0, owner="", group="", modification_time=1_500,
            access_time=9_000,
        )  # fmt: skip

    def _file(self, path: str, **_: Any) -> Any:
        inner = SimpleNamespace(read=lambda: 1 / 0, hsync=lambda: self.get_file_info(path))
        return _Opened(inner)

    read = create = _file


class _Opened:
    """A file of hdfs-native's: it hands everything to `inner`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def write(self, data: Any) -> int:
        return len(data)

    def hsync(self) -> None:
        self.inner.hsync()

    def close(self) -> None:
        """Do nothing more."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    Client.made = []
    monkeypatch.setattr(hdfs_native.fsspec, "Client", Client)
    hdfs._opened.cache_clear()
    return Client


def test_a_namenode_is_opened_once_with_the_properties_that_are_its_clients(client: type[Client]) -> None:
    given = {"dfs.b": "2", "more": "3", "dfs.a": "1", "xdfs.c": "4"}
    first = hdfs.open_hdfs("h:8020", given)
    assert isinstance(first, fs.PyFileSystem)
    again = hdfs.open_hdfs("h:8020", {"dfs.a": "1", "dfs.b": "2"})
    assert again is first
    assert hdfs.open_hdfs("h:8020", {"dfs.a": "9"}) is not first
    hdfs.open_hdfs("service", {})
    assert [(url, {k: v for k, v in more.items() if k.startswith("dfs")}) for url, more in client.made] == [
        ("hdfs://h:8020", {"dfs.a": "1", "dfs.b": "2"}),
        ("hdfs://h:8020", {"dfs.a": "9"}),
        ("hdfs://service", {}),
    ]
    with pytest.raises(UsageError) as raised:
        hdfs.open_hdfs("nowhere:1", {})
    assert str(raised.value) == "hdfs://nowhere:1: no such name service"


def test_a_file_of_hdfs_has_its_time_in_seconds_and_what_is_refused_is_an_error_of_the_system(
    client: type[Client],
) -> None:
    system = hdfs.open_hdfs("h:8020", {})
    [info] = system.get_file_info(["/a/x"])
    assert (info.path, info.size, info.mtime.timestamp()) == ("/a/x", 7, 1.5)
    found = system.handler.fs
    assert found._convert_file_status(found.client.get_file_info("/a/x"))["access_time"] == 9_000
    with pytest.raises(OSError, match=r"^HDFS: RPC error: safe mode$") as raised:
        found.client.get_file_info("/bad/x")
    assert type(raised.value.__cause__) is RuntimeError


def test_what_is_written_to_hdfs_is_synced_and_what_is_read_is_not(client: type[Client]) -> None:
    found = hdfs.open_hdfs("h:8020", {}).handler.fs
    writer = found._open("/a/x", "wb")
    assert isinstance(writer, hdfs._SyncedWriter)
    assert writer.writable() is True
    assert writer.write(b"abc") == 3
    writer.close()
    assert writer.closed
    refused = found._open("/bad/x", "wb")
    with pytest.raises(OSError, match=r"^HDFS: RPC error: safe mode$"):
        refused.close()
    assert refused.closed
    reader = found._open("/a/x", "rb")
    assert isinstance(reader, _Opened)
    assert isinstance(reader.inner, hdfs._Raising)
    with pytest.raises(ZeroDivisionError):
        reader.inner.read()


def test_whether_the_package_is_there_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hdfs.is_installed() is True
    monkeypatch.setattr(hdfs, "find_spec", lambda name: None if name == "hdfs_native" else object())
    assert hdfs.is_installed() is False
