"""Hosts on one machine: network namespaces on a bridge, and disks of their own, in namespaces that end with this process.

The rule: nothing is visible outside. The program starts itself again in a separate network and mount namespace (as root, or
by a user namespace), and everything is removed when it ends, however it ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

NETWORK = "10.77.0"
HERE = 254
"""The last part of the address of this process, where the clients are."""
NOBODY = "02:00:00:00:00:ff"
"""A link address that no host has: what is sent there is lost without a word."""
INSIDE = "BARNABAS_FAULTS_INSIDE"
EXT4_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = 2
PR_SET_PDEATHSIG = 1
SIGKILL = 9


class HostError(Exception):
    """The machine cannot have such hosts; the message says why."""


def enter_namespaces(module: str, arguments: Sequence[str]) -> None:
    """Start this program again in separate namespaces; returns only in there. Raises HostError."""
    if os.environ.get(INSIDE):
        return
    for program in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(program) is None:
            raise HostError(f"{program} is missing (Debian: util-linux, iproute2)")
    own = ["--net", "--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net", "--mount"]
    if subprocess.run(["unshare", *own, "true"], capture_output=True, check=False).returncode:
        raise HostError("namespaces cannot be made here: run it as root, or allow user namespaces")
    kind = "root" if os.geteuid() == 0 else "user"
    command = ["unshare", *own, sys.executable, "-m", module, *arguments]
    os.execvpe(command[0], command, {**os.environ, INSIDE: kind})


def is_root() -> bool:
    """Return whether file systems other than tmpfs can be mounted."""
    return os.environ.get(INSIDE) == "root"


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends: called in a child before it becomes another program."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)


def run(*command: str) -> None:
    """Run a command of the system. Raises HostError with its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


class Network:
    """All hosts, by the last part of their addresses."""

    def __init__(self) -> None:
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._cuts: set[tuple[int, int]] = set()
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge0", "type", "bridge")
        run("ip", "address", "add", f"{address(HERE)}/24", "dev", "bridge0")
        run("ip", "link", "set", "bridge0", "up")

    def add(self, host: int) -> None:
        """Make a host."""
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        assert holder.stdout is not None
        holder.stdout.readline()
        self._holders[host] = holder
        outside = f"host{host}"
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        run("ip", "link", "set", outside, "master", "bridge0", "up")
        self._inside(host, "link", "set", "lo", "up")
        self._inside(host, "address", "add", f"{address(host)}/24", "dev", "eth0")
        self._inside(host, "link", "set", "eth0", "up")

    def alias(self, host: int) -> None:
        """Give this process one more address."""
        run("ip", "address", "add", f"{address(host)}/24", "dev", "bridge0")

    def prefix(self, host: int) -> list[str]:
        """The words that start a command on a host; the process keeps its pid."""
        return ["nsenter", f"--net=/proc/{self._holders[host].pid}/ns/net", "--"]

    def cut(self, source: int, target: int, *, both_ways: bool = True) -> None:
        """Silently drop packets from `source` to `target`."""
        for host, other in ((source, target), (target, source)) if both_ways else ((source, target),):
            self._cuts.add((host, other))
            self._ip(host, "neigh", "replace", address(other), "lladdr", NOBODY, "nud", "permanent")

    def heal(self) -> None:
        """End all cuts."""
        for host, other in self._cuts:
            self._ip(host, "neigh", "del", address(other))
        self._cuts.clear()

    def _ip(self, host: int, *arguments: str) -> None:
        if host == HERE:
            run("ip", *arguments, "dev", "bridge0")
        else:
            self._inside(host, *arguments, "dev", "eth0")

    def _inside(self, host: int, *arguments: str) -> None:
        run(*self.prefix(host), "ip", *arguments)

    def close(self) -> None:
        """End all hosts."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()


def address(host: int) -> str:
    """The address of a host."""
    return f"{NETWORK}.{host}"


class Disk:
    """A small file system: in a file with ext4 as root, in memory otherwise."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self.path = path
        self._image = path.with_suffix(".img") if is_root() else None
        self._is_frozen = False
        path.mkdir(parents=True)
        if self._image is None:
            run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path))
            return
        with self._image.open("wb") as image:
            image.truncate(megabytes << 20)
        run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        run("mount", "-o", "loop", str(self._image), str(path))

    @property
    def can_fail(self) -> bool:
        """Return whether it can be frozen, and broken."""
        return self._image is not None

    def fill(self) -> None:
        """Fill the disk."""
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    continue

    def free(self) -> None:
        """Free the space that `fill` has taken."""
        (self.path / "ballast").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Block all writers until `thaw`."""
        self._is_frozen = True
        run("fsfreeze", "--freeze", str(self.path))

    def thaw(self) -> None:
        """Let writes through again."""
        if self._is_frozen:
            self._is_frozen = False
            run("fsfreeze", "--unfreeze", str(self.path))

    def break_down(self) -> None:
        """Make all reads and writes fail with an error until `mend`."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def mend(self) -> None:
        """Mount it again; no process may have files of it open. Data that were unsynced at the failure are lost."""
        run("umount", str(self.path))
        run("mount", "-o", "loop", str(self._image), str(self.path))

    def close(self) -> None:
        """Unmount it."""
        self.thaw()
        subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)
