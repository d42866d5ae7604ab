"""A broker in the Trio loop of this program."""

import trio

from barnabas.testing import open_broker


async def main():
    async with open_broker(seeds={"topics": {"orders": 1}}) as broker:  # in this very loop
        await broker.produce("orders", "a")
        await broker.wait_for_records("orders", 1)
        print(await broker.topics())


trio.run(main)
