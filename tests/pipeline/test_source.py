"""The data source `barnabas` in Spark: batch frames over both transports, pruning, damage."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Stream


def frame(spark: Any, stream: Stream, transport: str, topic: str, **options: Any) -> Any:
    reader = spark.read.format("barnabas").option("topic", topic).option("transport", transport)
    reader = reader.option("bootstrap", stream.bootstrap).option("logDirs", str(stream.broker.data))
    return reader.options(**options).load()


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_a_frame_has_every_record_with_its_coordinates(spark: Any, stream: Stream, transport: str) -> None:
    rows = frame(spark, stream, transport, "votes", splitBytes=16384).collect()
    events = stream.of("votes")
    assert sorted(row.key.decode() for row in rows) == sorted(event.key for event in events)
    assert {(row.topic, row.timestamp_type) for row in rows} == {("votes", 0)}
    assert len({(row.partition, row.offset) for row in rows}) == len(rows)
    assert {bytes(row.headers[0].value) for row in rows} == {b"votes"}
    sent = sorted(event.delivered for event in events)
    assert sorted(int(row.timestamp.timestamp() * 1000 + 0.5) for row in rows) == sent


def splits(frame: Any) -> int:
    return int(frame.rdd.getNumPartitions())


def test_filters_make_the_range_smaller_if_asked_to(spark: Any, stream: Stream) -> None:
    where = "partition = 1 and offset >= 100 and offset < 120"
    few = frame(spark, stream, "wire", "votes", splitBytes=4096, pushFilters="true").where(where)
    assert [row.offset for row in few.orderBy("offset").collect()] == list(range(100, 120))
    assert splits(few) == 1


def test_filtered_frame_leaves_its_source_whole(spark: Any, stream: Stream) -> None:
    every = frame(spark, stream, "wire", "votes", splitBytes=4096)
    assert every.where("offset < 0").count() == 0
    assert every.count() == len(stream.of("votes"))
    assert splits(every) > 6


def test_partitions_can_be_chosen(spark: Any, stream: Stream) -> None:
    rows = frame(spark, stream, "wire", "votes", partitions="0,2").select("partition").distinct().collect()
    assert {row.partition for row in rows} == {0, 2}


@pytest.mark.parametrize("transport", ["wire", "disk"])
def test_columns_that_are_asked_for_are_as_in_the_whole_frame(
    spark: Any, stream: Stream, transport: str
) -> None:
    whole = frame(spark, stream, transport, "clicks")
    for asked in (["offset"], ["headers", "partition"], ["value", "offset", "key"]):
        few = frame(spark, stream, transport, "clicks", columns=", ".join(asked))
        assert few.columns == asked
        assert few.exceptAll(whole.select(*asked)).count() == 0
        assert few.count() == len(stream.of("clicks"))


def test_columns_that_are_none_are_refused(spark: Any, stream: Stream) -> None:
    for text in ("", "offset,offset", "value,colour"):
        with pytest.raises(Exception, match="columns are some of topic, partition"):
            frame(spark, stream, "wire", "votes", columns=text).count()


def test_a_range_can_be_named_by_offsets(spark: Any, stream: Stream) -> None:
    rows = frame(
        spark, stream, "wire", "votes", startingOffsets='{"0":5,"1":-1,"2":-1}', endingOffsets='{"0":9}'
    )
    assert sorted(row.offset for row in rows.collect()) == [5, 6, 7, 8]


def test_unknown_options_values_are_explained(spark: Any, stream: Stream) -> None:
    with pytest.raises(Exception, match="isolation is read_committed or read_uncommitted, not 'x'"):
        frame(spark, stream, "wire", "votes", isolation="x").count()
