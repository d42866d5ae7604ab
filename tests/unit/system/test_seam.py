"""Names that only one system has are in `barnabas.system` alone; its tests run with the names of the other too."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.systems import IS_BSD

ROOT = Path(__file__).resolve().parents[3]
NAMES = {
    "select": {"epoll", "kqueue", "kevent"},
    "os": {
        "copy_file_range", "eventfd", "fdatasync", "fsync", "getrandom", "memfd_create", "pidfd_open", "pipe2",
        "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sendfile", "splice", "O_DIRECT", "O_NOATIME", "O_TMPFILE",
    },
    "fcntl": {"lockf", "fcntl", "F_FULLFSYNC", "F_SETPIPE_SZ"},
    "socket": {
        "AF_NETLINK", "MSG_MORE", "MSG_NOSIGNAL", "MSG_ZEROCOPY", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED",
        "TCP_CORK", "TCP_INFO", "TCP_KEEPIDLE", "TCP_QUICKACK", "TCP_USER_TIMEOUT",
    },
    "ctypes": {"CDLL"},
}  # fmt: skip
PATHS = ("/proc", "/sys/", "/dev/shm", "/dev/fd")
ITSELF_OPTIONAL = {"tools/tap/splicing.py"}


def uses(tree: ast.AST) -> list[str]:
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in NAMES.get(node.value.id, ()):
                lines.append(f"{node.lineno}: {node.value.id}.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(PATHS):
            lines.append(f"{node.lineno}: {node.value!r}")
    return lines


def test_one_package_names_what_only_one_system_has():
    server = ROOT / "server/barnabas"
    for top in (server, ROOT / "pipeline"):
        for path in top.rglob("*.py"):
            name = path.relative_to(top).as_posix()
            if not name.startswith(("system/", "wire/generated/")) and name not in ITSELF_OPTIONAL:
                assert not uses(ast.parse(path.read_text())), path
    assert uses(ast.parse((server / "system/files.py").read_text()))


@pytest.mark.skipif(IS_BSD, reason="this is that run")
def test_all_of_it_holds_with_the_names_of_macos():
    path = os.pathsep.join([str(ROOT / "tests/as_macos"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stdout + done.stderr
