"""`python forwarder.py PORT HOST:PORT ...`: accept on all interfaces, and forward connections to the addresses in turn.

It stands in for a mapped port of a container engine, and for a load balancer. It prints "ready" when it accepts.
"""

import asyncio
import sys
from itertools import cycle


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main(port: int, targets: list[str]) -> None:
    order = cycle(targets)

    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, target_port = next(order).rpartition(":")
        try:
            there = await asyncio.open_connection(host, int(target_port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(hand_on, "0.0.0.0", port)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
