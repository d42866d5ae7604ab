"""A simulated machine: the next broker on it never finds the one before it."""

from __future__ import annotations

import trio

from barnabas.testing.simulation.broker import SimulatedBroker
from barnabas.testing.simulation.world import World, run_world


def test_unawaited_stop_ends_before_the_next_start():
    async def program(world: World) -> bool:
        async with trio.open_nursery() as nursery:
            machine = SimulatedBroker(world, nursery)
            await machine.start()
            with trio.CancelScope() as given_up:
                given_up.cancel()
                await machine.stop()
            await machine.start()
            has_ended = machine.has_ended
            nursery.cancel_scope.cancel()
        return has_ended

    assert not run_world(0, program, seconds_max=60.0)


def test_broker_stopped_early_writes_its_final_files():
    async def program(world: World) -> tuple[bool, bool]:
        async with trio.open_nursery() as nursery:
            machine = SimulatedBroker(world, nursery)
            disk = machine.disk
            await machine.start_and_stop(0.0)
            has_ended, keeps_disk = machine.has_ended, machine.disk is disk
            await machine.start()
            nursery.cancel_scope.cancel()
        return has_ended, keeps_disk

    assert run_world(0, program, seconds_max=60.0) == (True, True)
