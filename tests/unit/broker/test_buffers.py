"""Receive buffers: memory follows the bytes that came, not the size that was claimed."""

from barnabas.broker.buffers import GROWTH_BYTES_MIN, MIB, POOL_BYTES_MAX, BufferPool


def test_a_claimed_size_takes_little_memory_at_first() -> None:
    assert len(BufferPool().take(100 * MIB)) == GROWTH_BYTES_MIN


def test_growth_doubles_and_keeps_what_came() -> None:
    buffer = BufferPool().take(100 * MIB)
    buffer[:3] = b"abc"
    larger = BufferPool.grown(buffer, 3, 100 * MIB)
    assert larger[:3] == b"abc"
    assert len(larger) == 2 * len(buffer)


def test_growth_ends_at_the_frame() -> None:
    assert len(BufferPool.grown(bytearray(GROWTH_BYTES_MIN), 0, GROWTH_BYTES_MIN + 1)) == 2 * GROWTH_BYTES_MIN


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    pool = BufferPool()
    buffer = bytearray(2 * MIB)
    pool.give(buffer)
    assert pool.take(3 * MIB) is not buffer
    assert pool.take(1 * MIB) is buffer
    assert pool.take(1 * MIB) is not buffer


def test_the_pool_is_bounded() -> None:
    pool = BufferPool()
    for _ in range(100):
        pool.give(bytearray(8 * MIB))
    kept = 0
    while len(pool.take(8 * MIB)) == 8 * MIB:
        kept += 1
    assert kept == POOL_BYTES_MAX // (8 * MIB)
