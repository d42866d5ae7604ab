"""A simulated world: time jumps, bytes arrive as TCP promises, and a seed repeats a history."""

from __future__ import annotations

import time

import pytest
import trio

from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.network import SOCKET_BUFFER_BYTES, SimulatedTransport
from barnabas.testing.simulation.world import World, run_world


async def _serve(world: World, received: list[bytes], *, answer: bool = True) -> None:
    (acceptor,) = world.network.host("server").bind("", 9092)
    acceptor.listen()
    async with trio.open_nursery() as nursery:
        while True:
            await acceptor.wait_acceptable()
            while (transport := acceptor.accept_now()) is not None:
                nursery.start_soon(_echo, transport, received, answer)


async def _echo(transport: SimulatedTransport, received: list[bytes], answer: bool) -> None:
    buffer = bytearray(1000)
    try:
        while count := await transport.receive_into(memoryview(buffer)):
            received.append(bytes(buffer[:count]))
            if answer:
                await transport.send([bytes(buffer[:count])])
    except OSError:
        pass
    transport.close()


def _history(seed: int) -> list[object]:
    history: list[object] = []

    async def client(world: World, number: int) -> None:
        stream = await world.network.host(f"client-{number}").dial("server", 9092)
        for n in range(5):
            await stream.send_all(b"%d/%d " % (number, n))
            history.append((round(trio.current_time(), 6), await stream.receive_some()))

    async def program(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, world, [])
            await trio.sleep(0.01)
            async with trio.open_nursery() as clients:
                for number in range(4):
                    clients.start_soon(client, world, number)
            nursery.cancel_scope.cancel()

    run_world(seed, program)
    return history


def test_a_seed_repeats_a_history() -> None:
    assert _history(1) == _history(1)
    assert _history(1) != _history(2)


def test_an_hour_passes_at_once() -> None:
    async def program(world: World) -> float:
        await trio.sleep(3000)
        return trio.current_time()

    began = time.monotonic()
    assert run_world(0, program) == pytest.approx(3000)
    assert time.monotonic() - began < 60  # not an hour


def test_what_never_ends_is_an_error_with_its_seed() -> None:
    async def program(world: World) -> None:
        await trio.sleep_forever()

    with pytest.raises(TimeoutError, match="seed 17"):
        run_world(17, program, seconds_max=10)


def test_bytes_arrive_in_order_whatever_their_size() -> None:
    sent = b"".join(b"%06d" % n for n in range(50_000))

    async def program(world: World) -> bytes:
        received: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: _serve(world, received, answer=False))
            await trio.sleep(0.01)
            stream = await world.network.host("client").dial("server", 9092)
            await stream.send_all(sent)
            await stream.aclose()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        return b"".join(received)

    assert len(sent) > 4 * SOCKET_BUFFER_BYTES
    for seed in range(5):
        assert run_world(seed, program) == sent


def test_nobody_listens_there() -> None:
    async def program(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.network.host("client").dial("server", 9092)
        (acceptor,) = world.network.host("server").bind("", 9092)
        with pytest.raises(ConnectionRefusedError):  # bound, and not ready yet
            await world.network.host("client").dial("server", 9092)
        with pytest.raises(OSError, match="in use"):
            world.network.host("server").bind("", 9092)
        acceptor.listen()
        await world.network.host("client").dial("server", 9092)

    run_world(0, program)


def test_a_cut_is_silence_until_it_is_healed() -> None:
    async def program(world: World) -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: _serve(world, []))
            await trio.sleep(0.01)
            stream = await world.network.host("client").dial("server", 9092)
            world.network.cut("client", "server")
            await stream.send_all(b"hello")
            with trio.move_on_after(5) as scope:
                await stream.receive_some()
            assert scope.cancelled_caught
            world.network.heal()
            assert await stream.receive_some() == b"hello"
            nursery.cancel_scope.cancel()
        return trio.current_time()

    assert 5 < run_world(0, program) < 6


def test_a_cut_in_one_direction() -> None:
    async def program(world: World) -> list[bytes]:
        received: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: _serve(world, received))
            await trio.sleep(0.01)
            stream = await world.network.host("client").dial("server", 9092)
            world.network.cut("server", "client", both_ways=False)
            await stream.send_all(b"x")
            with trio.move_on_after(5) as scope:
                await stream.receive_some()
            assert scope.cancelled_caught
            nursery.cancel_scope.cancel()
        return received

    assert run_world(0, program) == [b"x"]


def test_crashed_host_breaks_connections_and_frees_addresses() -> None:
    async def program(world: World) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: _serve(world, []))
            await trio.sleep(0.01)
            stream = await world.network.host("client").dial("server", 9092)
            nursery.cancel_scope.cancel()
        world.network.crash("server")
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        world.network.host("server").bind("", 9092)

    run_world(0, program)


def test_each_host_has_its_clock_and_its_entropy() -> None:
    async def program(world: World) -> tuple[bytes, bytes]:
        first, other = (world.environment(name, MemoryDisk()) for name in ("one", "other"))
        before = first.wall_clock_ms()
        await trio.sleep(2)
        assert first.wall_clock_ms() == before + 2000
        first.wall_clock_ms.step(-500)  # type: ignore[attr-defined]
        assert first.wall_clock_ms() == other.wall_clock_ms() - 500
        assert await first.threads.run(lambda: 7) == 7
        return first.entropy.token_bytes(8), other.entropy.token_bytes(8)

    first, second = run_world(3, program)
    assert first != second
    assert run_world(3, program) == (first, second)
