"""Rules of a mirror without clusters: names, positions, which records there are, and how rounds end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.records.batch import read_header
from barnabas.records.building import encode_batch
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record
from barnabas_pipeline.errors import DataLossError, IncompleteError, UsageError
from barnabas_pipeline.jobs.choices import Choice, choose, parse_choice
from barnabas_pipeline.jobs.mirror.copying import is_from_target, producer_settings
from barnabas_pipeline.jobs.mirror.model import (
    HEADER,
    Coordinates,
    Part,
    Place,
    check_identity,
    check_position,
    parse_coordinates,
)
from barnabas_pipeline.jobs.mirror.naming import check_rename, target_name
from barnabas_pipeline.jobs.mirror.reading import Counts, coordinates_of, read_blocks, read_records
from barnabas_pipeline.jobs.mirror.resuming import newest_header
from barnabas_pipeline.jobs.mirror.translating import Translator
from barnabas_pipeline.jobs.sites import Cluster, Site
from barnabas_pipeline.log.model import Bounds, CorruptSpan, LogOptions, OffsetRange, RawBatch

PLACE = Place("c", "tid", 1, "copy", "cid")


def part_of(**more: Any) -> Part:
    fields = {"bound": Bounds(10, 20, 20, 0), "target_cluster_id": "mine", **more}
    return Part(PLACE, LogOptions("topic"), LogOptions("copy"), **fields)


# --- names ------------------------------------------------------------------------------------------------------------


def test_valid_names_are_names_and_other_texts_patterns() -> None:
    choice = parse_choice(["a, b.c", "x.*,a"], ["y+"])
    assert choice == Choice(("a", "b.c"), ("x.*",), ("y+",))
    for topics, excluded in ((["a,"], []), ([""], []), (["(a"], []), ([], ["(a"])):
        with pytest.raises(UsageError):
            parse_choice(topics, excluded)


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (Choice(("b", "none")), ["b"]),
        (Choice(("__x", "__consumer_offsets")), ["__x", "__consumer_offsets"]),
        (Choice((), (".*",)), ["a", "ab", "b"]),
        (Choice((), ("a",)), ["a"]),
        (Choice(("b",), ("a.*", "b")), ["b", "a", "ab"]),
        (Choice(("b",), (".*",), ("b|a",)), ["ab"]),
        (Choice((), (".*",), ("a.",)), ["a", "b"]),
    ],
    ids=str,
)
def test_expressions_match_whole_names_and_nothing_internal(choice: Choice, chosen: list[str]) -> None:
    topics = {
        "b": False,
        "a": False,
        "ab": False,
        "internal": True,
        "__x": False,
        "__consumer_offsets": False,
    }
    assert choose(choice, topics) == chosen


@pytest.mark.parametrize(
    ("pattern", "choice", "sources", "is_good"),
    [
        ("{topic}", Choice((), (".*",)), 2, True),
        ("one", Choice(("a",)), 1, True),
        ("one", Choice(("a", "b")), 1, False),
        ("one", Choice((), ("a",)), 1, False),
        ("{source}", Choice(("a",)), 2, True),
        ("one", Choice(("a",)), 2, False),
        ("{source}.{topic}", Choice(("a", "b")), 2, True),
        ("{x}{topic}", Choice(("a",)), 1, False),
        ("{topic}{", Choice(("a",)), 1, False),
        ("}{topic}", Choice(("a",)), 1, False),
    ],
)
def test_a_policy_of_names_keeps_topics_apart(
    pattern: str, choice: Choice, sources: int, is_good: bool
) -> None:
    if is_good:
        check_rename(pattern, choice, sources)
    else:
        with pytest.raises(UsageError):
            check_rename(pattern, choice, sources)


def test_a_name_in_the_target_is_one_and_of_no_internal_topic() -> None:
    assert target_name("{source}.{topic}", "eu", "t") == "eu.t"
    for pattern, topic, reason in (
        ("{topic}", "__consumer_offsets", "internal"),
        ("{topic}/x", "t", "cannot be mirrored as"),
    ):
        with pytest.raises(UsageError, match=reason):
            target_name(pattern, "eu", topic)


# --- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"c/t/1", b"c/t/1/2/3", b"c/t/x/2", b"c/t/1/x", b"\xff", b"", None, "c/t"])
def test_what_is_no_coordinate_of_ours_is_none(value: Any) -> None:
    assert parse_coordinates(value) is None


def test_coordinates_and_positions_round_trip() -> None:
    first = Coordinates("c", "t", 3, 44)
    assert parse_coordinates(first.encode()) == parse_coordinates("c/t/3/44") == first
    assert PLACE.parse_position(PLACE.position(7)) == Coordinates("c", "tid", 1, 7)
    assert PLACE._replace(target_id="other").parse_position(PLACE.position(7)) is None, "it was made again"
    assert PLACE.parse_position("") is None


@pytest.mark.parametrize(
    ("position", "missing"), [(9, (1, 9, 10)), (10, None), (15, None), (20, None), (21, (1, 20, 21))]
)
def test_a_position_is_one_that_the_source_has(position: int, missing: Any) -> None:
    bound = Bounds(10, 18, 20, 0)
    if missing is None:
        check_position(PLACE, "t", position, bound)
        return
    with pytest.raises(DataLossError) as raised:
        check_position(PLACE, "t", position, bound)
    assert [tuple(range_) for range_ in raised.value.missing] == [missing]


@pytest.mark.parametrize(
    ("cluster", "topic", "is_good"), [("c", "tid", True), ("x", "tid", False), ("c", "x", False)]
)
def test_a_position_is_of_this_incarnation(cluster: str, topic: str, is_good: bool) -> None:
    position = Coordinates(cluster, topic, 1, 12)
    if is_good:
        check_identity(PLACE, "t", position)
        return
    with pytest.raises(DataLossError) as raised:
        check_identity(PLACE, "t", position)
    assert [tuple(range_) for range_ in raised.value.missing] == [(1, 12, None)]


@pytest.mark.parametrize(
    ("coordinates", "is_loop"),
    [
        ([], False),
        ([Coordinates("mine", "x", 0, 0)], True),
        ([Coordinates("other", "x", 0, 0)], False),
        ([Coordinates("other", "x", 0, 0), Coordinates("mine", "y", 0, 0)], True),
    ],
)
def test_a_record_that_the_target_had_before_ends_here(coordinates: list[Coordinates], is_loop: bool) -> None:
    record = Record(0, 0, None, b"v", [(HEADER, coordinate.encode()) for coordinate in coordinates])
    assert is_from_target(part_of(), record) is is_loop


@pytest.mark.parametrize(("topic_id", "is_loop"), [("cid", True), ("x", False)])
def test_within_one_cluster_only_the_target_topic_is_a_loop(topic_id: str, is_loop: bool) -> None:
    record = Record(0, 0, None, b"v", [(HEADER, Coordinates("c", topic_id, 0, 0).encode())])
    assert is_from_target(part_of(target_cluster_id="c"), record) is is_loop


def test_producer_is_idempotent_whatever_its_settings() -> None:
    settings = (("acks", "1"), ("enable.idempotence", "false"), ("linger.ms", "7"), ("client.id", "x"))
    part = part_of()
    own, client = producer_settings(replace(part, target=replace(part.target, client=settings)))
    assert (own.acks, own.is_idempotent, own.transactional_id) == (-1, True, part.transactional_id)
    assert (own.linger_ms, own.compression, own.buffer_bytes, own.creates_topics) == (
        7,
        "lz4",
        16 << 20,
        False,
    )
    assert client.client_id == "x"
    assert producer_settings(part)[1].client_id == "barnabas-mirror"


# --- records ----------------------------------------------------------------------------------------------------------


class Log:
    """A partition of batches; reads are counted."""

    options = SimpleNamespace(topic="topic")

    def __init__(self, *items: Any) -> None:
        self.items = items
        self.reads: list[OffsetRange] = []

    def read(self, asked: OffsetRange) -> Iterator[Any]:
        self.reads.append(asked)
        for first, last, item in self.items:
            if last >= asked.start and first < asked.end:
                yield item


def batch(first: int, *sources: Coordinates | tuple[Coordinates, ...] | None, aborted: bool = False) -> Any:
    """A batch of records with coordinates, those of several clusters in a tuple, or none."""
    chains = [(source,) if isinstance(source, Coordinates) else source or () for source in sources]
    records = [
        Record(first + n, 1_000, b"k", b"v", [(HEADER, place.encode()) for place in chain])
        for n, chain in enumerate(chains)
    ]
    return first, first + len(sources) - 1, raw(encode_batch(records, base_offset=first), aborted=aborted)


def raw(data: bytes | bytearray, *, aborted: bool = False) -> RawBatch:
    return RawBatch(bytes(data), read_header(data), aborted)


def marker(offset: int) -> Any:
    data = encode_end_marker(
        commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
    )
    return offset, offset, raw(data)


def source(offset: int, topic: str = "tid") -> Coordinates:
    return Coordinates("c", topic, 1, offset)


def test_records_are_those_that_consumers_see_within_the_range() -> None:
    log: Any = Log(batch(0, None, None, None), batch(3, None, aborted=True), marker(4), batch(5, None, None))
    counts = Counts()
    assert [record.offset for record in read_records(log, OffsetRange(1, 1, 6), counts)] == [1, 2, 5]
    assert counts.control == 1
    assert [record.offset for record in read_records(log, OffsetRange(1, 0, 2))] == [0, 1]


def test_what_is_damaged_ends_the_range_after_all_before_it() -> None:
    log: Any = Log(batch(0, None, None), (2, 2, CorruptSpan(2, 3, "crc", "it is", b"")))
    offsets: list[int] = []
    with pytest.raises(IncompleteError, match="topic-1 is damaged at 2: it is"):
        offsets.extend(record.offset for block in read_blocks(log, OffsetRange(1, 0, 9)) for record in block)
    assert offsets == [0, 1]


def test_records_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_pipeline.jobs.mirror.reading.RECORDS_PER_BLOCK", 2)
    log: Any = Log(batch(0, None, None, None, None, None))
    assert [len(block) for block in read_blocks(log, OffsetRange(1, 0, 9))] == [2, 2, 1]


def test_the_newest_coordinates_are_last() -> None:
    headers = [(HEADER, b"a/t/0/1"), ("other", b"x/t/0/2"), (HEADER, b"junk"), (HEADER, b"b/t/0/3")]
    assert [place.cluster_id for place in coordinates_of(Record(0, 0, None, b"", headers))] == ["a", "b"]


@pytest.mark.parametrize(
    ("offset", "target"),
    [(0, 10), (100, 10), (101, 12), (102, 12), (105, 12), (106, 13), (107, 17), (999, 17)],
)
def test_source_offset_translates_to_the_next_mirrored_record(offset: int, target: int) -> None:
    """Those mirrored are 100, 105 and 106 of the source; at 11 a marker, at 13 of another mirror, at 15 and 16 nothing."""
    other = Coordinates("x", "tid", 1, 999)
    log: Any = Log(batch(10, source(100)), marker(11), batch(12, source(105), other, source(106)))
    translator = Translator(log, PLACE, Bounds(10, 17, 17, 0))
    assert translator.offset_of(offset) == target
    assert translator.is_settled
    assert not Translator(log, PLACE, Bounds(10, 16, 17, 0)).is_settled


def test_the_newest_record_says_how_far_a_mirror_has_come() -> None:
    there = Bounds(0, 250, 250, 0)
    log: Any = Log(batch(3, source(40)), batch(20, source(60), source(61)), marker(22))
    assert newest_header(log, part_of(), there) == source(62)
    assert [(read.start, read.end) for read in log.reads] == [(150, 250), (0, 150)], "in ranges that double"
    assert newest_header(Log(), part_of(), there) is None  # type: ignore[arg-type]
    mixed: Any = Log(batch(3, source(40), Coordinates("x", "y", 1, 5), None))
    with pytest.raises(UsageError, match="copy-1 ends with records that are not from a mirror"):
        newest_header(mixed, part_of(), there)
    assert newest_header(mixed, part_of(shares_topics=True), there) == source(41)
    foreign: Any = Log(batch(3, source(40), Coordinates("x", "y", 1, 5)))
    assert newest_header(foreign, part_of(), there) == Coordinates("x", "y", 1, 6), "to be checked afterwards"
    elsewhere: Any = Log(batch(3, Coordinates("c", "tid", 0, 5)))
    assert newest_header(elsewhere, part_of(shares_topics=True), there) is None
    with pytest.raises(UsageError):
        newest_header(elsewhere, part_of(), there)


def test_last_cluster_of_a_record_counts() -> None:
    there, far = Bounds(0, 250, 250, 0), Coordinates("far", "tid", 1, 7)
    through: Any = Log(batch(3, (far, source(40))))
    assert newest_header(through, part_of(), there) == source(41)
    assert newest_header(through, part_of(shares_topics=True), there) == source(41)
    assert Translator(through, PLACE, Bounds(0, 9, 9, 0)).offset_of(40) == 3
    passed_on: Any = Log(batch(3, (source(40), far)), batch(4, source(90)))
    assert newest_header(Log(passed_on.items[0]), part_of(shares_topics=True), there) is None  # type: ignore[arg-type]
    assert Translator(passed_on, PLACE, Bounds(0, 9, 9, 0)).offset_of(50) == 3, (
        "nothing of this mirror is before it"
    )


def test_wrong_settings_of_a_cluster_are_wrong_options() -> None:
    with pytest.raises(UsageError):
        Site(Cluster("", "h:1", client=(("security.protocol", "NONE"),)))
    with pytest.raises(UsageError):
        Site(Cluster("", "no port"))
