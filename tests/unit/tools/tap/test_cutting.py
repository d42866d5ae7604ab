"""Frames cut out of a stream: what the owner is given, what is forwarded when, and the room that frames take meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.tools.tap.cutting import (
    BEGINNING_BYTES,
    UNCOUNTED_BYTES,
    Budget,
    Cutter,
    Data,
    Fate,
    NotFramesError,
)
from barnabas.tools.tap.skimming import FetchSkimmer
from barnabas.wire.generated.fetch import FetchResponse
from tests.unit.tools.tap.test_session import response

LARGE = UNCOUNTED_BYTES + 1


class Owner:
    """Gives each frame the fate that its first byte names, and remembers what it was asked and given."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, bytes]] = []
        self.given: list[tuple[bytes, int]] = []
        self.skimmed: list[tuple[bytes, int, int, bool]] = []
        self.changes: Callable[[bytes], bytes | None] = lambda _: None

    def begin(self, size: int, start: Data) -> Fate:
        self.begun.append((size, bytes(start)))
        if bytes(start[:1]) == b"!":
            raise NotFramesError
        return {b"K": Fate.KEEP, b"H": Fate.HOLD, b"\0": Fate.SKIM}.get(bytes(start[:1]), Fate.PASS)

    def end(self, frame: Data, size: int) -> Data | None:
        self.given.append((bytes(frame), size))
        return self.changes(bytes(frame))

    def skimmer(self, size: int, start: Data) -> FetchSkimmer:
        return FetchSkimmer(16, size)

    def end_skimmed(self, skimmer: FetchSkimmer, size: int, end_size: int) -> Data | None:
        self.skimmed.append((bytes(skimmer.kept), size, end_size, skimmer.is_lost))
        return self.changes(b"")


class Cut:
    """A cutter with its owner; what it forwards is joined."""

    def __init__(self, room: int = 1 << 20, *, defers: bool = False) -> None:
        self.owner = Owner()
        self.budget = Budget(room)
        self.cutter = Cutter(self.owner, self.budget, defers=defers)

    def feed(self, data: bytes) -> bytes:
        return b"".join(map(bytes, self.cutter.feed(data)))


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def content(kind: bytes, size: int) -> bytes:
    return kind + bytes(n % 251 for n in range(size - 1))


def test_what_nobody_looks_at_may_pass_unseen() -> None:
    cut = Cut()
    assert cut.cutter.unread == 0
    passing = framed(content(b"P", BEGINNING_BYTES + 100))
    cut.feed(passing[: 4 + BEGINNING_BYTES - 1])
    assert cut.cutter.unread == 0
    cut.feed(passing[4 + BEGINNING_BYTES - 1 : 4 + BEGINNING_BYTES])
    assert cut.cutter.unread == 100
    cut.cutter.passed(60)
    assert (cut.cutter.unread, cut.cutter.is_inside, cut.owner.given) == (40, True, [])
    cut.cutter.passed(40)
    assert (cut.cutter.unread, cut.cutter.is_inside) == (0, False)
    assert cut.owner.given == [(passing[4 : 4 + BEGINNING_BYTES], BEGINNING_BYTES + 100)]
    cut.feed(framed(content(b"K", 9000))[:8000])
    assert cut.cutter.unread == 0, "it is kept"


# --- gaps -----------------------------------------------------------------------------------------------------------


def test_gap_within_a_frame_leaves_its_beginning() -> None:
    for kind in (b"K", b"H", b"P"):
        cut = Cut()
        data = framed(content(kind, LARGE))
        assert not cut.cutter.skip(1)
        cut.feed(data[:104])
        assert not cut.cutter.skip(LARGE - 99)
        assert cut.cutter.skip(1000)
        assert cut.budget.used == 0
        assert cut.owner.given == []
        cut.feed(data[1104:])
        assert cut.owner.given == [(data[4:104], LARGE)]
        cut.feed(framed(b"Kept"))
        assert cut.owner.given[1:] == [(b"Kept", 4)]
    to_the_end = Cut()
    to_the_end.feed(framed(content(b"K", 50))[:30])
    assert to_the_end.cutter.skip(24)
    assert to_the_end.owner.given == [(content(b"K", 50)[:26], 50)]
    assert not to_the_end.cutter.is_inside


# --- without records ------------------------------------------------------------------------------------------------


def fetch(*sizes: int, with_node: bool = True) -> bytes:
    parts = [FetchResponse.PartitionData(n, records=bytes(size)) for n, size in enumerate(sizes)]
    topic = FetchResponse.FetchableTopicResponse(topic_id=b"i" * 16, partitions=parts)
    nodes = [FetchResponse.NodeEndpoint(1, "broker", 9092)] if with_node else []
    return response(1, 16, 5, FetchResponse(responses=[topic], node_endpoints=nodes))


def fed(cut: Cut, data: bytes, step: int) -> bytes:
    result = b""
    while data:
        result += cut.feed(data[:step])
        data = data[step:]
    return result


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
def test_records_pass_and_the_end_is_held_back(step: int) -> None:
    data = fetch(300, 0, 200)
    end = len(data) - len(fetch(300, 0, 200, with_node=False)) + 1  # from the number of tagged fields on
    for change, forwarded in ((None, data), (b"+" * end, data[:-end] + b"+" * end)):
        cut = Cut()
        cut.owner.changes = lambda _, change=change: change  # type: ignore[misc]
        assert fed(cut, data + framed(b"Kept"), step) == forwarded + framed(b"Kept")
        ((kept, size, end_size, is_lost),) = cut.owner.skimmed
        assert (size, end_size, is_lost) == (len(data) - 4, end, False)
        assert len(kept) < len(data) - 500
        assert cut.owner.given == [(b"Kept", 4)]
        assert not cut.cutter.is_inside


def test_kept_part_of_a_large_response_takes_room() -> None:
    data = fetch(*([1] * 3000))
    end = len(data) - len(fetch(*([1] * 3000), with_node=False)) + 1
    for room, is_lost in ((len(data) - 4, False), (len(data) - 5, True)):
        cut = Cut(room)
        assert cut.feed(data[:-10]) == data[: -10 if is_lost else -end]
        assert cut.budget.used == (0 if is_lost else len(data) - 4)
        assert cut.feed(data[-10:]) == data[-10 if is_lost else -end :]
        assert [row[3] for row in cut.owner.skimmed] == [is_lost]
        assert cut.budget.used == 0
    cut = Cut()
    cut.feed(data[:-10])
    assert cut.cutter.rest() == data[-end:-10]
    assert (cut.budget.used, cut.cutter.is_inside) == (0, False)


def test_gap_in_records_loses_only_that_response() -> None:
    data = fetch(300, 0)
    cut = Cut()
    cut.feed(data[:100])
    assert cut.cutter.skip(50)
    cut.feed(data[150:] + framed(b"Kept"))
    assert [row[3] for row in cut.owner.skimmed] == [True]
    assert cut.owner.given == [(b"Kept", 4)]
