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
from tests.support.effort import drawing
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


def test_an_owner_gets_each_frame_as_a_whole_or_its_beginning_and_forwards_as_it_says() -> None:
    """A random stream, beside the plain rule: held frames come back changed, all else is as it came."""
    rng = drawing()
    for _ in range(60):
        cut = Cut(200_000, defers=rng.random() < 0.5)
        cut.owner.changes = lambda frame: framed(b"changed") if len(frame) % 2 and frame[:1] == b"H" else None
        frames = [
            content(rng.choice((b"K", b"H", b"P")), rng.choice((1, 2, 3, 4, 9, 5000, LARGE)))
            for _ in range(8)
        ]
        data = b"".join(map(framed, frames))
        forwarded, at = b"", 0
        while at < len(data):
            size = rng.choice((1, 3, 8, 1000, 70_000))
            forwarded += cut.feed(data[at : at + size])
            cut.cutter.sent()
            at += size
        changed = [framed(b"changed") if len(one) % 2 and one[:1] == b"H" else framed(one) for one in frames]
        assert forwarded == b"".join(changed)
        assert cut.owner.begun == [(len(one), one[:4]) for one in frames]
        assert cut.owner.given == [
            (one if one[:1] in b"KH" else one[:BEGINNING_BYTES], len(one)) for one in frames
        ]
        assert (cut.cutter.count, cut.budget.used, cut.cutter.is_inside) == (8, 0, False)


@pytest.mark.parametrize(("kind", "held"), [(b"K", 0), (b"P", 0), (b"H", 1)])
def test_a_frame_is_begun_once_its_key_is_there(kind: bytes, held: int) -> None:
    cut = Cut()
    data = framed(content(kind, 6))
    for number, byte in enumerate(data):
        forwarded = cut.feed(bytes([byte]))
        if number < 7:
            assert (forwarded, cut.owner.begun, cut.cutter.is_inside) == (b"", [], True)
        elif number == 7:
            assert forwarded == (b"" if held else data[:8])
        else:
            assert cut.owner.begun == [(6, data[4:8])]
            assert cut.cutter.is_inside is (number < 9)
    assert cut.owner.given == [(data[4:], 6)]


def test_a_frame_that_is_shorter_than_a_key_is_begun_when_it_is_whole() -> None:
    cut = Cut()
    assert cut.feed(b"\0\0\0\2K") == b""
    assert cut.owner.begun == []
    assert cut.feed(b"x\0\0") == b"\0\0\0\2Kx"
    assert cut.feed(b"\0\0" + framed(b"K")[:3]) == b"\0\0\0\0"
    assert cut.owner.given == [(b"Kx", 2), (b"", 0)]
    assert cut.owner.begun == [(2, b"Kx"), (0, b"")]


def test_what_is_no_frame_passes_with_all_that_follows() -> None:
    for odd, begun in ((framed(b"!..."), (4, b"!...")), (b"\xff\xff\xff\xffabcd", (-1, b"abcd"))):
        cut = Cut()
        data = framed(b"Kept") + odd + framed(b"K")
        assert cut.feed(data) == data
        assert cut.owner.begun == [(4, b"Kept"), begun]
        assert (cut.cutter.is_opaque, cut.cutter.unread, cut.cutter.count) == (True, 0, 1)
        assert cut.feed(b"more") == b"more"
        assert cut.owner.given == [(b"Kept", 4)]


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


# --- room -----------------------------------------------------------------------------------------------------------


def test_small_frames_take_no_room() -> None:
    budget = Budget(100)
    assert budget.take(UNCOUNTED_BYTES)
    assert budget.used == 0
    budget.give(UNCOUNTED_BYTES)
    assert budget.used == 0
    assert not budget.take(LARGE)
    assert Budget(LARGE).take(LARGE)
    larger = Budget(2 * LARGE)
    assert (larger.take(LARGE), larger.take(LARGE), larger.take(LARGE)) == (True, True, False)
    larger.give(LARGE)
    assert (larger.used, larger.take(LARGE)) == (LARGE, True)


def test_a_frame_takes_room_until_it_is_handed_over_and_one_that_was_held_until_it_is_sent() -> None:
    for kind, after_feed, after_sent in ((b"K", 0, 0), (b"H", LARGE, 0), (b"P", 0, 0)):
        cut = Cut()
        data = framed(content(kind, LARGE))
        cut.feed(data[:-1])
        assert cut.budget.used == (0 if kind == b"P" else LARGE)
        assert cut.feed(data[-1:]) == (data if kind == b"H" else data[-1:])
        assert cut.budget.used == after_feed
        cut.cutter.sent()
        assert cut.budget.used == after_sent


@pytest.mark.parametrize("kind", [b"K", b"H"])
def test_without_room_a_frame_passes_and_its_beginning_is_kept(kind: bytes) -> None:
    cut = Cut(LARGE - 1)
    data = framed(content(kind, LARGE))
    assert cut.feed(data[:70]) == data[:70]
    assert cut.feed(data[70:]) == data[70:]
    assert cut.owner.given == [(data[4 : 4 + BEGINNING_BYTES], LARGE)]
    assert cut.budget.used == 0


@pytest.mark.parametrize("kind", [b"K", b"H"])
def test_room_is_given_back_where_a_frame_is_not_to_become_whole(kind: bytes) -> None:
    cut = Cut()
    data = framed(content(kind, LARGE))
    assert cut.feed(data[:500]) == (data[:500] if kind == b"K" else b"")
    assert cut.cutter.rest() == (b"" if kind == b"K" else data[:500])
    assert (cut.budget.used, cut.cutter.is_inside, cut.cutter.rest()) == (0, False, b"")
    failing = Cut()

    def fail(frame: bytes) -> bytes | None:
        raise RuntimeError

    failing.owner.changes = fail
    with pytest.raises(RuntimeError):
        failing.feed(data)
    failing.cutter.sent()
    assert failing.budget.used == 0


def test_the_beginning_of_a_frame_that_nothing_is_known_of_is_given_back() -> None:
    cut = Cut()
    assert cut.feed(b"\0\0\0\x09Ke") == b""
    assert cut.cutter.is_inside
    assert cut.cutter.rest() == b"\0\0\0\x09Ke"
    assert not cut.cutter.is_inside


def test_a_large_frame_is_handed_over_later_only_where_it_ends_what_has_come() -> None:
    large, small = framed(content(b"K", LARGE)), framed(b"Kxyz")
    for data, given in (
        (large, 0),
        (small, 1),
        (large + small, 2),
        (small + large, 1),
        (framed(content(b"K", LARGE - 1)), 1),
    ):
        cut = Cut(defers=True)
        assert cut.feed(data) == data
        assert len(cut.owner.given) == given
        assert cut.budget.used == (LARGE if data.endswith(large) else 0)
        cut.cutter.sent()
        assert len(cut.owner.given) == 1 + (len(data) == len(large + small))
        assert cut.budget.used == 0
    held = Cut(defers=True)
    held.feed(framed(content(b"H", LARGE)))
    assert len(held.owner.given) == 1


# --- gaps -----------------------------------------------------------------------------------------------------------


def test_bytes_that_are_missing_within_a_frame_leave_its_beginning() -> None:
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
    found = b""
    while data:
        found += cut.feed(data[:step])
        data = data[step:]
    return found


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


def test_records_that_come_next_need_not_be_seen() -> None:
    data = fetch(300, with_node=False)
    cut = Cut()
    first = (
        len(data) - 2 - 300 - 1
    )  # the tagged fields of partition and topic, and of the answer, come after the records
    for byte in data[:first]:
        assert cut.cutter.unread == 0
        cut.feed(bytes([byte]))
    assert cut.cutter.unread == 300
    cut.cutter.passed(100)
    assert cut.cutter.unread == 200
    cut.cutter.passed(200)
    assert cut.cutter.unread == 0
    cut.feed(data[first + 300 :])
    assert [one[1] for one in cut.owner.skimmed] == [len(data) - 4]


def test_what_is_kept_of_an_answer_with_many_partitions_takes_room() -> None:
    data = fetch(*([1] * 3000))
    end = len(data) - len(fetch(*([1] * 3000), with_node=False)) + 1
    for room, is_lost in ((len(data) - 4, False), (len(data) - 5, True)):
        cut = Cut(room)
        assert cut.feed(data[:-10]) == data[: -10 if is_lost else -end]
        assert cut.budget.used == (0 if is_lost else len(data) - 4)
        assert cut.feed(data[-10:]) == data[-10 if is_lost else -end :]
        assert [one[3] for one in cut.owner.skimmed] == [is_lost]
        assert cut.budget.used == 0
    cut = Cut()
    cut.feed(data[:-10])
    assert cut.cutter.rest() == data[-end:-10]
    assert (cut.budget.used, cut.cutter.is_inside) == (0, False)


def test_a_gap_in_records_loses_the_answer_and_not_the_next_frame() -> None:
    data = fetch(300, 0)
    cut = Cut()
    cut.feed(data[:100])
    assert cut.cutter.skip(50)
    cut.feed(data[150:] + framed(b"Kept"))
    assert [one[3] for one in cut.owner.skimmed] == [True]
    assert cut.owner.given == [(b"Kept", 4)]
