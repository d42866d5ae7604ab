"""Commands of docs/how-to/cluster.md for three machines, tried as they are printed: python -m compat.cluster.howto.

The files of deploy/ are installed by the commands of the page, the command of the unit starts each broker, the loop of the
rolling restart runs under load, and then a broker is killed and started again without its disk. Nothing that was
acknowledged may be lost, and no request may fail.

Machines are the addresses 127.0.1.1 to 127.0.1.3, with a directory each for /etc, /opt and /var/lib; `ssh`, `systemctl`,
`useradd` and the installation of the package are small scripts that do the same without systemd.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from barnabas.testing.running import import_path
from compat.cluster.load import Load, check, read_all
from compat.cluster.nodes import VERSION, ClusterError, in_directory, wait_until
from compat.kafka import ZooKeeperServer, free_port, release, tool_command
from compat.kit.sides import ROOT

PAGE = ROOT / "docs" / "how-to" / "cluster.md"
DEPLOY = ROOT / "deploy"
MACHINES = {f"kafka{number}": f"127.0.1.{number}" for number in (1, 2, 3)}
TOPIC, PARTITIONS = "howto", 6
SECONDS_MAX = 120
READY = "barnabas is ready"
SYSTEMCTL = """#!/bin/sh
# systemctl restart|start|stop|kill barnabas, on the machine $MACHINE.
cd "$MACHINE"
end() {
    [ -f pid ] || return 0
    kill -"$1" "$(cat pid)" 2>/dev/null
    while kill -0 "$(cat pid)" 2>/dev/null; do sleep 0.05; done
    rm pid
}
begin() {
    . ./command >>log 2>&1 &
    echo $! >pid
}
case "$1" in
    restart) end TERM; : >log; begin ;;
    enable|start) : >log; begin ;;
    stop) end TERM ;;
    kill) end KILL ;;
esac
"""


def blocks(title: str) -> list[str]:
    """Return the indented commands of a section of the page. Raises ClusterError."""
    section = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE.read_text(), re.M | re.S)
    if section is None:
        raise ClusterError(f"{PAGE.name} has no section {title!r}")
    texts = re.findall(r"(?:^    .*\n(?:\n(?=    ))?)+", section.group(2), re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in texts]


class Machines:
    """Three machines with the programs that the page requires; the installation of each is in its directory."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        self._zookeeper = zookeeper
        self._port = free_port()
        self._bin = directory / "bin"
        self._bin.mkdir()
        self._program("systemctl", SYSTEMCTL)
        self._program("useradd", "#!/bin/sh\n")
        self._program("ssh", f'#!/bin/sh\nexport MACHINE={directory}/"$1"\nshift\nexec "$@"\n')
        tool = shlex.join(tool_command(release(VERSION), "topics"))
        # "wait until it prints nothing", like a reader of the page
        self._program("kafka-topics.sh", f'#!/bin/sh\nwhile [ -n "$({tool} "$@")" ]; do sleep 0.2; done\n')

    def _program(self, name: str, text: str) -> None:
        path = self._bin / name
        path.write_text(text)
        path.chmod(0o755)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{address}:{self._port}" for address in MACHINES.values())

    def run(self, commands: str, machine: str = "kafka1") -> None:
        """Run commands of the page on a machine. Raises ClusterError."""
        home = self.directory / machine
        home.mkdir(exist_ok=True)
        for place in ("/etc/", "/opt/", "/var/lib/"):
            commands = commands.replace(place, f"{home}{place}")
        for name, address in MACHINES.items():
            commands = commands.replace(f"{name}:9092", f"{address}:{self._port}")
        commands = commands.replace("$host:9092", f"$(cat {self.directory}/$host/address):{self._port}")
        path = f"{self._bin}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-ec", commands], cwd=ROOT, env={**os.environ, "PATH": path, "MACHINE": str(home)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_MAX, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ClusterError(
                f"on {machine}: {commands}\n{done.stdout[-2000:]}\n{self.log(machine)[-2000:]}"
            )

    def install(self, machine: str) -> None:
        """Follow the page for one of three machines, with the required edits."""
        (commands,) = blocks("On three machines")[:1]
        home = self.directory / machine
        home.mkdir()
        (home / "address").write_text(MACHINES[machine])
        program = home / "opt" / "barnabas" / "bin" / "barnabas"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nPYTHONPATH={import_path()} exec {sys.executable} -m barnabas "$@"\n')
        program.chmod(0o755)
        lines = commands.splitlines(keepends=True)
        packaged = [line for line in lines if "pip install" in line]
        if len(packaged) != 1 or "/opt/barnabas" not in packaged[0]:
            raise ClusterError("the page does not say how the package comes to /opt/barnabas")
        start = [line for line in lines if line.startswith("systemctl")]
        self.run("".join(line for line in lines if line not in packaged + start), machine)
        self._edit(home / "etc" / "barnabas" / "server.properties", machine)
        unit = (home / "etc" / "systemd" / "system" / "barnabas.service").read_text()
        (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.M)
        for place in ("/etc/", "/opt/"):
            command = command.replace(place, f"{home}{place}")
        (home / "command").write_text(f"exec {command}\n")
        self.run("".join(start), machine)

    def _edit(self, path: Path, machine: str) -> None:
        """Edit the settings that differ between machines, and the host names of the example."""
        address, number = MACHINES[machine], machine.removeprefix("kafka")
        text = path.read_text()
        for old, new in (
            ("broker.id=1", f"broker.id={number}"),
            ("broker.rack=room-a", f"broker.rack=room-{number}"),
            ("0.0.0.0:9092", f"{address}:{self._port}"),
            ("kafka1.example.org:9092", f"{address}:{self._port}"),
            ("zk1.example.org:2181,zk2.example.org:2181,zk3.example.org:2181", self._zookeeper),
            ("log.dirs=/var/lib", f"log.dirs={path.parents[2]}/var/lib"),
        ):
            if old not in text:
                raise ClusterError(f"{path.name} has no {old}")
            text = text.replace(old, new)
        path.write_text(text)

    def log(self, machine: str) -> str:
        """Output of the broker of a machine since it was started."""
        path = self.directory / machine / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_in_sync(self) -> None:
        """Wait until no partition lacks a replica."""
        self.run(
            f"kafka-topics.sh --bootstrap-server {self.bootstrap} --describe --under-replicated-partitions"
        )

    def close(self) -> None:
        """End all brokers."""
        for path in self.directory.glob("kafka?/pid"):
            try:
                os.kill(int(path.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                continue


def _try(machines: Machines) -> None:
    for machine in MACHINES:
        machines.install(machine)
    wait_until(lambda: all(READY in machines.log(name) for name in MACHINES), "all three brokers are ready")
    print(f"three machines: {machines.bootstrap}", flush=True)
    create = f"--create --topic {TOPIC} --partitions {PARTITIONS}"
    done = subprocess.run(
        tool_command(release(VERSION), "topics", "--bootstrap-server", machines.bootstrap, *create.split()),
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ClusterError(f"kafka-topics --create: {done.stdout}{done.stderr}")
    load = Load(machines.bootstrap, TOPIC, PARTITIONS, rate=500)
    with load:
        wait_until(lambda: len(load.acknowledged) > 500, "the load begins")
        begun = time.monotonic()
        (restart,) = blocks("Rolling restart")
        machines.run(restart)
        print(
            f"rolling restart: {time.monotonic() - begun:.0f} s, longest pause {load.longest_pause(begun):.1f} s"
        )
        begun = time.monotonic()
        machines.run("systemctl kill barnabas; rm -r /var/lib/barnabas", "kafka3")
        machines.run("systemctl start barnabas", "kafka3")
        machines.wait_in_sync()
        print(
            f"a broker without its disk: {time.monotonic() - begun:.0f} s, longest pause {load.longest_pause(begun):.1f} s"
        )
        so_far = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > so_far + 500, "records are acknowledged")
    check(load, read_all(machines.bootstrap, TOPIC, PARTITIONS))
    for machine in MACHINES:
        if "Traceback" in machines.log(machine):
            raise ClusterError(f"{machine}: {machines.log(machine)[-3000:]}")
    print(f"{len(load.acknowledged)} records, none refused, none lost", flush=True)


def _run(directory: Path) -> None:
    zookeeper = ZooKeeperServer(release(VERSION), directory / "zookeeper")
    machines = Machines(directory, zookeeper.address)
    try:
        zookeeper.start()
        _try(machines)
    finally:
        machines.close()
        zookeeper.stop()


def main() -> int:
    """Try the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster.howto", description=__doc__)
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    return in_directory("barnabas-cluster-howto-", parser.parse_args().dir, _run)


if __name__ == "__main__":
    sys.exit(main())
