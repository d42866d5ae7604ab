"""Answers on their way: in pieces, in short steps, and no more of them waiting than there is room for."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.errors import AnswerError
from barnabas.network import writing
from barnabas.network.writing import OWNER_STREAMS_MAX, PIECE_BYTES, STREAMS_MAX, Streams, Unsent, pieces_of
from barnabas.sandbox import bodies
from barnabas.sandbox.bodies import AT_ONCE_BYTES_MAX, VALUES_MAX
from barnabas.sandbox.messages import SandboxError
from tests.support.at_once_sandbox import AtOnce
from tests.support.step_watch import StepWatch


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        "ä\n",
        {"a": [1, 2.5, None, True, {"b": "x" * 300_000}]},
        [{"n": n} for n in range(30_000)],
    ],
)
async def test_a_value_is_the_same_json_in_pieces(value: Any) -> None:
    pieces = await pieces_of(value)
    assert json.loads(b"".join(pieces)) == value
    assert max(map(len, pieces)) <= 2 * PIECE_BYTES
    assert b"".join(await pieces_of(b"[1]")) == b"[1]"


async def test_a_wide_answer_is_made_in_short_steps() -> None:
    value = {"members": [{"topic": f"topic-{n}", "partitions": [1, 2, 3]} for n in range(60_000)]}
    with StepWatch() as watch:
        assert len(await pieces_of(value)) > 10
    assert watch.worst < 0.05, watch.where


async def test_no_watched_step_goes_through_all_objects() -> None:
    with StepWatch():
        collections = gc.get_stats()[-1]["collections"]
        assert len([[] for _ in range(500_000)]) == 500_000
        assert gc.get_stats()[-1]["collections"] == collections


async def test_an_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "ANSWER_BYTES_MAX", 200_000)
    with pytest.raises(AnswerError) as raised:
        await pieces_of(["x" * 70_000] * 10)
    assert raised.value.status == 413


async def test_the_slowest_gives_way_where_too_much_waits(autojump_clock: object) -> None:
    unsent, gone = Unsent(100), []

    async def send(name: str, size: int, seconds: float) -> None:
        try:
            with unsent.sending([bytes(size)]):
                await trio.sleep(seconds)
        except trio.BrokenResourceError:
            gone.append((name, trio.current_time()))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, "first", 60, 1_000)
        await trio.sleep(1)
        nursery.start_soon(send, "second", 40, 5)
        await trio.sleep(1)
        nursery.start_soon(send, "third", 50, 5)
        await trio.sleep(1)
        assert gone == [("first", began + 2)]
        nursery.start_soon(send, "larger than all", 200, 5)
    assert {name for name, _ in gone} == {"first", "second", "third"}
    assert trio.current_time() == began + 8
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(send, "again", 50, 1)
    assert len(gone) == 3, "what was given back is there again"


def test_a_visitor_and_all_have_so_many_streams() -> None:
    streams = Streams()
    opened = [streams.open("ann") for _ in range(OWNER_STREAMS_MAX)]
    for stream in opened:
        stream.__enter__()
    assert refusal(streams, "ann") == 429
    others = [streams.open(f"user {n // OWNER_STREAMS_MAX}") for n in range(STREAMS_MAX - OWNER_STREAMS_MAX)]
    for stream in others:
        stream.__enter__()
    assert refusal(streams, "bob") == 503
    opened[0].__exit__(None, None, None)
    assert refusal(streams, "ann") == 0


def refusal(streams: Streams, owner: str) -> int:
    try:
        with streams.open(owner):
            return 0
    except AnswerError as error:
        return error.status


async def read(body: bytes, *refusals: Exception) -> Any:
    sandbox: Any = AtOnce(*refusals)
    return await bodies.read(body, sandbox, "ann"), [name for name, _ in sandbox.called]


@pytest.mark.parametrize(
    ("body", "refusals", "status"),
    [
        (b"{", (), 400), (b"{" * AT_ONCE_BYTES_MAX * 2, (), 400), (b"\xff", (), 400), (b"[" * 10_000, (), 400),
        (b"[" + b"1," * VALUES_MAX + b"1]", (), 413), (b" " * AT_ONCE_BYTES_MAX * 2, (SandboxError("too long"),), 413),
    ],
)  # fmt: skip
async def test_a_body_that_cannot_be_read_is_refused(
    body: bytes, refusals: tuple[Exception, ...], status: int
) -> None:
    with pytest.raises(AnswerError) as raised:
        await read(body, *refusals)
    assert raised.value.status == status
