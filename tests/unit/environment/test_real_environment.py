"""Objects of threads and connections are freed at once, not when all objects are collected."""

import gc
import weakref
from collections.abc import Iterator

import pytest
import trio

from barnabas.environment.real import OsThreads


class Large:
    """Stands for what a frame holds: 100 MB of records."""


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_what_failed_in_a_thread_is_not_kept_by_its_traceback() -> None:
    seen = []

    def fail() -> None:
        large = Large()
        seen.append(weakref.ref(large))
        raise ValueError(large)

    async def hold_something() -> None:
        mine = Large()
        seen.append(weakref.ref(mine))
        with pytest.raises(ValueError, match="Large"):
            await OsThreads().run(fail)

    await hold_something()
    await trio.lowlevel.checkpoint()
    assert [reference() for reference in seen] == [None, None]


async def test_a_result_belongs_to_who_has_asked_for_it() -> None:
    large = await OsThreads().run(Large)
    seen = weakref.ref(large)
    del large
    assert seen() is None


async def test_stopped_thread_raises_where_it_is_awaited() -> None:
    threads = OsThreads()

    def work() -> None:
        while True:
            threads.check_cancelled()

    with trio.move_on_after(0.01) as scope:
        await threads.run(work)
    assert scope.cancelled_caught
