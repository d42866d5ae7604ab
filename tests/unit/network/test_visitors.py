"""A visitor whose answer fails: the connection ends, the log says why, and others are answered."""

from __future__ import annotations

import errno
import logging
import os

import pytest
import trio

from barnabas.network.sockets import BACKLOG, bind_sockets
from barnabas.network.visitors import Visitor, Visitors


@pytest.mark.parametrize(
    ("failure", "is_defect"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), False),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE)), False),
        (OSError(errno.EIO, os.strerror(errno.EIO)), True),
        (ValueError("a defect"), True),
    ],
)
async def test_only_a_defect_is_logged_with_its_traceback(failure, is_defect, caplog, nursery) -> None:
    failures = [failure]

    async def answer(visitor: Visitor) -> None:
        if failures:
            raise failures.pop()
        await visitor.stream.send_all(b"answered")

    sockets = bind_sockets("127.0.0.1", 0)
    for sock in sockets:
        sock.listen(BACKLOG)
    host, port = sockets[0].getsockname()
    nursery.start_soon(Visitors("a test", 4, answer).serve, sockets)
    with caplog.at_level(logging.ERROR, "barnabas.network.visitors"), trio.fail_after(10):
        received = []
        for _ in range(2):
            async with await trio.open_tcp_stream(host, port) as stream:
                received.append(await stream.receive_some())
    assert received == [b"", b"answered"]
    (record,) = caplog.records
    assert record.getMessage() == f"a request for a test could not be answered: {failure}"
    assert bool(record.exc_info) == is_defect
