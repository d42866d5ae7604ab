"""Receive buffers: memory follows the bytes that came, not the size that was claimed."""

from barnabas.broker.buffers import GROWTH_BYTES_MAX, MIB, POOL_BYTES_MAX, SCRATCH_BYTES, BufferPool


def test_a_buffer_at_most_doubles() -> None:
    assert BufferPool.growth(SCRATCH_BYTES, 100 * MIB) == SCRATCH_BYTES
    assert BufferPool.growth(MIB, 100 * MIB) == MIB
    assert BufferPool.growth(50 * MIB, 100 * MIB) == GROWTH_BYTES_MAX


def test_growth_ends_at_the_frame() -> None:
    assert BufferPool.growth(SCRATCH_BYTES, SCRATCH_BYTES + 1) == 1


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    pool = BufferPool()
    buffer = bytearray(2 * MIB)
    pool.give(buffer)
    assert pool.take(3 * MIB) is None
    assert pool.take(1 * MIB) is buffer
    assert pool.take(1 * MIB) is None


def test_the_pool_is_bounded() -> None:
    pool = BufferPool()
    for _ in range(100):
        pool.give(bytearray(8 * MIB))
    kept = 0
    while pool.take(8 * MIB) is not None:
        kept += 1
    assert kept == POOL_BYTES_MAX // (8 * MIB)
