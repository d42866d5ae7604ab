"""A ZooKeeper server on loopback, for as long as the command runs: ours in this process, or Apache's in another.

The rule: all of its files are in one directory, and an existing directory is used again with its data.
"""

from __future__ import annotations

from pathlib import Path

import trio

from barnabas.errors import leaves
from barnabas.tools.localcluster.children import Child, ChildError
from barnabas.tools.localcluster.jars import Program
from barnabas.tools.localcluster.ports import free_port
from barnabas.tools.zkserver.server import Server
from barnabas.tools.zkserver.storage import StorageError

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Small and quick to start."""
TICK_MS = 1000
"""Sessions may be 2 to 20 ticks long."""
READY_SECONDS = 60.0
POLL_SECONDS = 0.05
ANSWER_SECONDS = 2.0


class OwnZooKeeper:
    """Our server, in this process. Lifecycle: `start`, `run` in a task, `close`."""

    def __init__(self, directory: Path, *, credentials: str | None = None) -> None:
        """`credentials` are `user:password` that clients must have; None for every client on this machine."""
        self.server = Server(directory, credentials=credentials)
        self.address = ""

    async def start(self) -> None:
        """Read the stored content, and listen on a free port. Raises ChildError."""
        try:
            self.address = f"127.0.0.1:{await self.server.open('127.0.0.1', 0)}"
        except (StorageError, OSError) as error:
            raise ChildError(f"the ZooKeeper server cannot be started: {error}") from error

    async def run(self) -> None:
        """Serve until cancelled. Raises ChildError once changes cannot be kept."""
        try:
            await self.server.run()
        except* StorageError as group:
            raise ChildError(f"ZooKeeper has failed: {leaves(group)[0]}") from group

    async def close(self) -> None:
        """Close its port and its directory."""
        await self.server.close()


class ApacheZooKeeper:
    """One of Apache's servers. Lifecycle: `start`, then its child is awaited and stopped like any other."""

    def __init__(self, program: Program, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        config = directory / "zoo.cfg"
        self.child = Child(
            "ZooKeeper",
            (program.java, *JVM, "-cp", program.classpath, MAIN, str(config)),
            directory / "zookeeper.log",
        )
        self._config = config

    @staticmethod
    def was_used_in(directory: Path) -> bool:
        """Return whether such a server has kept its data there before."""
        return (directory / "zoo.cfg").exists()

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Write its configuration, and start it. Raises ChildError, OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = (
            f"dataDir={self.directory / 'data'}",
            f"clientPort={self.port}",
            "clientPortAddress=127.0.0.1",
            f"tickTime={TICK_MS}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            "autopurge.purgeInterval=1",
        )
        self._config.write_text("".join(f"{line}\n" for line in lines))
        self.child.start(reads_output=False)

    async def ready(self) -> None:
        """Wait until it serves sessions. Raises ChildError."""
        with trio.move_on_after(READY_SECONDS):
            while not self.child.ended.is_set():
                if await self._serves():
                    return
                await trio.sleep(POLL_SECONDS)
        late = "" if self.child.ended.is_set() else f" in {READY_SECONDS:.0f} s"
        raise ChildError(f"ZooKeeper has not become ready{late}{self.child.last_words()}")

    async def _serves(self) -> bool:
        answer = b""
        try:
            with trio.move_on_after(ANSWER_SECONDS):
                async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                    await stream.send_all(b"srvr")
                    async for part in stream:
                        answer += part
        except (OSError, trio.BrokenResourceError):
            return False
        return b"Mode:" in answer
