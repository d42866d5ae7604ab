"""Directories with a separate Debian, in which commands run as on a machine without other software.

The rule: a directory is created once and not changed: changes by a command go to memory, and are lost with the process.
This needs root; mounts belong to a namespace, so none remains, whatever happens.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KEPT = Path(os.environ.get("BARNABAS_ROOTS", "/var/tmp/barnabas-roots"))
MIRROR = "http://deb.debian.org/debian"
INSIDE = "BARNABAS_IN_NAMESPACE"
PASSED = (
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_CERT",
    "SSL_CERT_FILE", "PIP_DEFAULT_TIMEOUT",
)  # fmt: skip
"""Variables for this machine's access to package registries."""
SHARED = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/pip.conf")
"""Files for the same purpose; read-only."""


def lack() -> str:
    """Return the missing requirement; empty if there is none."""
    if os.getuid() != 0:
        return "it needs root"
    missing = [name for name in ("debootstrap", "unshare", "mount", "chroot") if not shutil.which(name)]
    return (
        f"there is no {', '.join(missing)} (Debian: apt-get install debootstrap util-linux)"
        if missing
        else ""
    )


def enter_namespace(module: str) -> None:
    """Replace this process by the same program in a namespace of mounts and processes; returns only within one."""
    if os.environ.get(INSIDE) != "1":
        os.environ[INSIDE] = "1"
        inner = [sys.executable, "-m", module, *sys.argv[1:]]
        os.execvp(
            "unshare",
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", *inner],
        )


def base(suite: str, packages: Sequence[str]) -> Path:
    """Return a directory with the smallest Debian and these packages, created on first use."""
    directory = KEPT / "-".join((suite, *sorted(packages)))
    if not directory.exists():
        print(f"making {directory}", file=sys.stderr, flush=True)
        new = directory.with_name(f"{directory.name}.new")
        if new.exists():
            subprocess.run(["rm", "-rf", "--one-file-system", new], check=True)
        new.parent.mkdir(parents=True, exist_ok=True)
        options = ["--variant=minbase", f"--include={','.join(packages)}"]
        subprocess.run(["debootstrap", *options, suite, new, MIRROR], stdout=subprocess.DEVNULL, check=True)
        new.rename(directory)
    return directory


class Root:
    """A Debian in which commands run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def command(self, *words: str | Path, user: str = "root", cwd: str = "/") -> list[str]:
        """Return the words that run a command in it; of this environment, only access to the registries is passed."""
        passed = [f"{name}={os.environ[name]}" for name in PASSED if name in os.environ]
        inner = [
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/home/somebody",
            "LANG=C.UTF-8",
            *passed,
        ]
        login = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user != "root" else []
        move = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", cwd]
        return ["chroot", str(self.path), *login, *inner, *move, *map(str, words)]

    def run(self, *words: str | Path, user: str = "root", cwd: str = "/") -> str:
        """Run a command that must succeed; returns its output."""
        command = self.command(*words, user=user, cwd=cwd)
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-3000:]}"
            )
        return done.stdout


@contextmanager
def opened(directory: Path) -> Iterator[Root]:
    """Yield a copy of a Debian with its changes in memory. Needs a namespace of mounts."""
    work = Path(tempfile.mkdtemp(prefix="barnabas-root-"))
    try:
        _mount("-t", "tmpfs", "tmpfs", work)
        for name in ("upper", "inner", "root"):
            (work / name).mkdir()
        layers = f"lowerdir={directory},upperdir={work / 'upper'},workdir={work / 'inner'}"
        root = work / "root"
        _mount("-t", "overlay", "-o", layers, "overlay", root)
        _mount("-t", "proc", "proc", root / "proc")
        _mount("--bind", "/dev", root / "dev")
        _mount("-t", "tmpfs", "tmpfs", root / "dev/shm")
        for name in SHARED:
            if os.path.exists(name):
                target = root / name[1:]
                if os.path.isdir(name):
                    target.mkdir(parents=True, exist_ok=True)
                elif not target.exists():
                    target.touch()
                _mount("--bind", "-o", "ro", name, target)
        (root / "home/somebody").mkdir(parents=True)
        shutil.chown(root / "home/somebody", 1000, 1000)
        yield Root(root)
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", work], check=False)
        work.rmdir()


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)
