"""The lake in HDFS: a namenode and a datanode of Apache Hadoop, reached without Java."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.jobs.compact import compact
from barnabas_pipeline.jobs.loading import load
from barnabas_pipeline.lake import hdfs, store
from barnabas_pipeline.lake.iceberg import Lake, Place
from barnabas_pipeline.lake.store import IO_PROPERTIES, StoreIO
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.lake.vacuum import vacuum
from compat.kafka.broker import free_port

from .conftest import Stream
from .tables import SCHEMA
from .tables import load as load_rows
from .test_lake import check, good_events, options, rows_of
from .using import STEPS, die_at, run_here, use_lake

ONCE = "dfs.client.failover.max.attempts"


def lake_at(namenode: str, directory: Path, **more: str) -> Lake:
    # The FileIO is for stock readers: pyiceberg's own needs libhdfs.
    properties = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", **IO_PROPERTIES, **more}
    return Lake(f"hdfs://{namenode}/{directory.name}", properties=tuple(properties.items()))


@pytest.fixture
def place(namenode: str, tmp_path: Path) -> Place:
    return lake_at(namenode, tmp_path).place("logins")


def test_all_that_a_local_lake_does_is_done_in_hdfs(place: Place) -> None:
    use_lake(place)


@pytest.mark.parametrize(("point", "is_committed"), STEPS.items())
def test_a_writer_that_dies_leaves_files_that_nobody_names(
    place: Place, point: str, is_committed: bool
) -> None:
    die_at(place, point, is_committed=is_committed)


def test_a_process_that_has_used_it_has_children(place: Place) -> None:
    forks = "import subprocess; subprocess.run(['true'], preexec_fn=lambda: None, check=True)"  # as PySpark starts Java
    done = run_here(f"from tests.pipeline.tables import *; load({place!r}, 10); {forks}")
    assert done.returncode == 0, done.stderr


def test_a_topic_is_loaded_compacted_and_audited(
    spark: Any, stream: Stream, namenode: str, tmp_path: Path
) -> None:
    loading = options(stream, tmp_path, "logins", offsets_per_commit_max=700)
    loading.root = lake_at(namenode, tmp_path).place("logins")
    load(spark, loading)
    assert compact(spark, loading.root).files_before > 3
    assert vacuum(loading.root, age_seconds=-1) > 3
    assert rows_of(spark, loading) == good_events(stream, "logins")
    for is_deep in (False, True):
        report = check(spark, loading, deep=is_deep)
        assert report.problems == []
        assert report.offsets == report.rows_compared == len(stream.of("logins"))


def test_hdfs_file_is_whole_on_close_and_refusals_are_oserror(place: Place) -> None:
    io = StoreIO({})
    stream = io.new_output(f"{place.location}/a").create()
    stream.write(b"x" * 10_000)
    stream.close()
    stream.close()
    assert store.sha256_of(io, f"{place.location}/a")[0] == 10_000
    store.write(io, f"{place.location}/empty", b"")
    assert store.read(io, f"{place.location}/empty") == b""
    [listed] = [entry for entry in store.listing(io, place.location) if entry.location.endswith("/a")]
    assert listed.location == f"{place.location}/a"
    assert abs(listed.modified - time.time()) < 600
    with pytest.raises(FileNotFoundError):
        store.read(io, f"{place.location}/none")
    with pytest.raises(OSError, match=r"HDFS: RPCError.*ParentNotDirectoryException"):
        store.write(io, f"{place.location}/a/b", b"")


def test_namenode_away_is_incomplete_and_unknown_is_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = f"127.0.0.1:{free_port()}"
    with pytest.raises(IncompleteError, match="cannot be reached: OSError: Connection refused"):
        load_rows(lake_at(away, tmp_path, **{ONCE: "1"}).place("logins"), 10)
    with pytest.raises(UsageError, match=r"hdfs://names: .*No NameNode hosts found"):
        Table(lake_at("names", tmp_path).place("others")).prepare(SCHEMA)
    monkeypatch.setattr(hdfs, "is_installed", lambda: False)
    with pytest.raises(UsageError, match="needs a client of HDFS: pip install hdfs-native"):
        Table(lake_at(away, tmp_path).place("more")).prepare(SCHEMA)
