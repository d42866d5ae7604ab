"""Copies of log dirs: what they share, what they do not, and what a broker finds in them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.format import names
from barnabas.tools.control import copying
from barnabas.tools.control.snapshots import COPIED_BYTES_MAX, SnapshotError, Snapshots
from barnabas.tools.seeding.local_requests import LocalRequests
from barnabas.tools.seeding.looking import Looking
from barnabas.tools.seeding.planting import plant
from barnabas.tools.seeding.reading import read_seeds
from tests.support.broker import Asked, broker_to_ask

LARGE = "x" * (COPIED_BYTES_MAX // 4)


@asynccontextmanager
async def broker(directory: Path, **seeds: Any) -> AsyncIterator[Asked]:
    async with broker_to_ask(directory, {"offsets.topic.num.partitions": "1"}) as asked:
        await plant(asked.broker, read_seeds(seeds))
        yield asked


async def values(asked: Asked, topic: str = "t") -> list[object]:
    return [record["value"] for record in await Looking(LocalRequests(asked.broker)).records(topic)]


def snapshots_of(directory: Path) -> Snapshots:
    return Snapshots([str(directory / "logs")])


def files(directory: Path) -> dict[str, os.stat_result]:
    return {str(path.relative_to(directory)): path.stat() for path in directory.rglob("*") if path.is_file()}


async def test_a_snapshot_is_opened_without_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots = snapshots_of(tmp_path)
    records = [{"value": "one"}, {"value": LARGE}]
    async with broker(tmp_path, topics={"t": {"records": records}}, groups={"g": {"t": {"0": 1}}}) as asked:
        await snapshots.take("one", asked.services)
        await plant(asked.broker, read_seeds({"topics": {"t": {"records": ["later"]}, "new": {}}}))
    snapshots.fork("one", [str(tmp_path / "fork" / "logs")])
    caplog.clear()
    async with broker(tmp_path / "fork") as asked:
        assert await values(asked) == ["one", LARGE]
        assert (await Looking(LocalRequests(asked.broker)).group("g"))["offsets"][0]["offset"] == 1
        assert "new" not in asked.services.metadata.image.topics
        assert not asked.services.logs.is_unclean
    assert [record for record in caplog.records if record.name != "barnabas.serving.stalls"] == []
    snapshots.put_back("one")
    async with broker(tmp_path) as asked:
        assert await values(asked) == ["one", LARGE]
    snapshots.tidy_up()
    assert sorted(os.listdir(tmp_path / "logs.snapshots")) == ["one"]


async def test_large_segments_are_shared_and_never_written_again(tmp_path: Path) -> None:
    snapshots = snapshots_of(tmp_path)
    async with broker(tmp_path, topics={"t": {"records": [LARGE] * 8}, "small": {"records": ["a"]}}) as asked:
        await snapshots.take("one", asked.services)
        before = files(tmp_path / "logs.snapshots" / "one")
        shared = [name for name, stat in before.items() if stat.st_nlink > 1]
        assert sum(before[name].st_size for name in shared) > 8 * len(LARGE)
        assert sum(stat.st_size for name, stat in before.items() if name not in shared) < COPIED_BYTES_MAX
        for name in ("two", "three"):
            await plant(
                asked.broker,
                read_seeds({"topics": {"t": {"records": [LARGE] * 5}, "small": {"records": ["b"]}}}),
            )
            await snapshots.take(name, asked.services)
    after = files(tmp_path / "logs.snapshots" / "one")
    unchanged = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in before.items()}
    assert {name: (stat.st_size, stat.st_mtime_ns) for name, stat in after.items()} == unchanged
    for name, count in (("three", 18), ("one", 8), ("two", 13)):
        snapshots.put_back(name)
        async with broker(tmp_path) as asked:
            assert len(await values(asked)) == count
            await plant(asked.broker, read_seeds({"topics": {"t": {"records": ["more"]}}}))


async def test_names_of_snapshots(tmp_path: Path) -> None:
    snapshots = snapshots_of(tmp_path)
    async with broker(tmp_path, topics={"t": 1}) as asked:
        for name in ("", ".hidden", "a/b", "..", "a" * 101):
            with pytest.raises(SnapshotError, match="is no name for a snapshot"):
                await snapshots.take(name, asked.services)
        await snapshots.take("one", asked.services)
        with pytest.raises(SnapshotError, match="there is a snapshot one already"):
            await snapshots.take("one", asked.services)
        await snapshots.take("one", asked.services, replace=True)
        assert snapshots.names() == ["one"]
        snapshots.remove("one")
        assert snapshots.names() == []
    for do in (snapshots.put_back, snapshots.remove):
        with pytest.raises(SnapshotError, match="there is no snapshot one; there are: none"):
            do("one")


def test_files_are_copied_where_they_cannot_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (source / "t-0").mkdir(parents=True)
    (source / "t-0" / names.file_name(0, names.LOG)).write_bytes(b"closed")
    (source / "t-0" / names.file_name(7, names.LOG)).write_bytes(b"active")
    (source / names.META_PROPERTIES).write_bytes(b"meta")
    (source / names.LOCK).write_bytes(b"")

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    copying.copy_log_dir(str(source), str(tmp_path / "linked"))
    monkeypatch.setattr(os, "link", refuse)
    copying.copy_log_dir(str(source), str(tmp_path / "copied"))
    for name, links in (("linked", 2), ("copied", 1)):
        result = files(tmp_path / name)
        assert sorted(result) == sorted(set(files(source)) - {names.LOCK})
        assert result[f"t-0/{names.file_name(7, names.LOG)}"].st_nlink == 1
        assert result[f"t-0/{names.file_name(0, names.LOG)}"].st_nlink == links
        assert (tmp_path / name / "t-0" / names.file_name(0, names.LOG)).read_bytes() == b"closed"
