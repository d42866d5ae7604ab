"""A broker that was killed while its disk was full: it starts, can be read, and takes writes when there is room again."""

import copy

import pytest

from barnabas.log.format import names
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.errors import ErrorCode
from tests.support.brokers import running

DIRS = ("/a",)


SETTINGS = {"log_segment_bytes": "1000", "log_retention_ms": "-1"}


async def values(client):
    """All that a consumer reads from t-0."""
    read = []
    while True:
        error, more = await client.fetch("t", 0, len(read))
        assert error == 0
        if not more:
            return read
        read += more


async def killed_disk():
    """The disk of a broker that is killed: all that it has written, and nothing of a clean end."""
    disk = MemoryDisk()
    async with running(DIRS, disk, **SETTINGS) as client:
        await client.create("t", 2)
        for n in range(40):
            result = await client.produce("t", 0, b"%d" % n * 50)
            assert result.error_code == 0
        copied = copy.deepcopy(disk)
    copied.locks.clear()
    return copied


@pytest.mark.parametrize("room", [0, 1, 7, 40, 200, 500])
@pytest.mark.parametrize("torn", [False, True])
async def test_it_starts_and_serves_readers(room, torn):
    disk = await killed_disk()
    expected = [b"%d" % n * 50 for n in range(40)]
    if torn:
        directory = "/a/t-0"
        last = max(entry.name for entry in disk.list(directory) if entry.name.endswith(names.LOG))
        file = disk.open(f"{directory}/{last}")
        file.write(b"\0\0\0 the beginning of a batch", file.size())
    disk.room = room
    async with running(DIRS, disk, **SETTINGS) as client:
        assert await values(client) == expected
        result = await client.produce("t", 0, b"x" * 800)
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await values(client) == expected
        disk.room = None
        assert (await client.produce("t", 0, b"more")).error_code == 0
        assert await values(client) == [*expected, b"more"]
    async with running(DIRS, disk, **SETTINGS) as client:
        assert await values(client) == [*expected, b"more"]
