"""Everything from the outside comes in through the environment: nothing else reads a clock, or starts a thread."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "server/barnabas"
FORBIDDEN = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"},
    "secrets": None,  # None: everything
    "random": None,
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom", "open", "sendfile", "pread", "pwrite", "fsync", "fdatasync"},
    "threading": {"Thread", "Timer"},
    "concurrent.futures": {"ThreadPoolExecutor"},
    "socket": {"socket", "create_connection", "create_server", "getaddrinfo", "getfqdn", "gethostname"},
    "trio": {"to_thread", "from_thread", "open_tcp_stream", "serve_tcp", "open_file", "Path"},
    "trio.to_thread": None,
    "datetime": {"now", "utcnow", "today"},
}
MAY = {
    "environment/clocks.py": "the operating system's wall clock",
    "environment/real.py": "the operating system's environment",
    "network/certificates.py": "prepares files, before there is a broker",
    "network/dialing.py": "its network: connections to others",
    "network/wait_set.py": "its network: how long the turns take in which sockets wake up",
    "network/ready_sockets.py": "its network: which sockets can be read",
    "network/sockets.py": "its network",
    "network/tls.py": "its network, encrypted: files are read in order to be encrypted",
    "cluster/zookeeper/requests.py": "kazoo's thread and its connection; simulations have a ZooKeeper of their own",
    "cluster/zookeeper/sasl.py": "logins on kazoo's connection; simulations have a ZooKeeper of their own",
    "log/disk.py": "its disk",
    "system/files.py": "its disk and network, where systems differ",
    "system/processes.py": "other processes",
    "serving/loop_budget.py": "measures the real loop; a simulated broker gets another budget",
    "log/workers.py": "its threads and time for synchronous code",
    "network/writing.py": "its network: how long a step takes that writes an answer",
    "network/visitors.py": "lets in who watches a process, over its real network",
    "cli/__init__.py": "part of the process, before there is a broker",
    "environment/ephemeral.py": "part of the process, before there is a broker",
    "environment/log_lines.py": "part of the process, whatever clock its broker has",
    "environment/output.py": "part of the process",
    "tiered/directory.py": "a remote store: its disk; simulations have a store of their own",
    "tools/seeding/local_requests.py": "waits in real time, whatever its broker shows; reads what a fetch has found",
}
MAY_PACKAGES = {
    "commands": "programs that ask brokers over the network",
    "mcp": "a program that asks brokers over the network",
    "console": "a client of brokers with a network of its own, also where it shares the process of one",
    "registry": "a client of brokers with a network of its own, also where it shares the process of one",
    "rest": "a client of brokers with a network of its own, also where it shares the process of one",
    "client": "programs of its users, with their own clock and connections",
    "tiered/aiven": "a remote store: its disk, its threads, keys of its own; simulations have a store of their own",
    "tools/conformance": "a program that judges brokers over the network",
    "tools/control": "a host for tests, and its process: a clock of its own, a process that is killed, damaged files",
    "tools/demo": "prepares a directory, before there is a broker",
    "tools/localcluster": "a program that starts and watches processes",
    "tools/logtool": "a program of its own",
    "tools/probing": "a program that asks brokers over the network",
    "tools/snapshots": "a program that asks stores over the network, with threads of its own",
    "tools/tap": "a program of its own; what `serve --tap` shows has the time at which it was seen",
    "sandbox": "child processes of console, registry and commands, which share no part of a simulated broker",
    "testing": "simulations are the other environment",
    "wire/generated": "code for messages",
    "tools/zkserver": "a ZooKeeper server, a program of its own",
}


def test_nothing_but_the_environment_reaches_the_outside() -> None:
    outside = {}
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if name not in MAY and not any(name.startswith(f"{package}/") for package in MAY_PACKAGES):
            uses = outside_uses(ast.parse(path.read_text()))
            if uses:
                outside[name] = uses
    assert not outside


def test_what_may_reach_the_outside_is_there() -> None:
    for name in (*MAY, *MAY_PACKAGES):
        assert (SOURCES / name).exists(), name


def test_the_forbidden_is_recognised() -> None:
    for code in (
        "import time\ntime.monotonic()",
        "from time import monotonic as now",
        "import trio\nawait trio.to_thread.run_sync(f)",
        "from secrets import token_bytes",
        "import os\nos.fsync(3)",
        "import datetime\ndatetime.datetime.now()",
    ):
        assert outside_uses(ast.parse(code)), code
    assert not outside_uses(ast.parse("import trio, os\nawait trio.sleep(1)\nos.path.join('a')"))


def outside_uses(tree: ast.AST) -> list[str]:
    """Return what a module uses of `FORBIDDEN`, with lines; names that are only types are not looked at."""
    modules: dict[str, str] = {}
    uses = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN:
            forbidden = FORBIDDEN[node.module]
            for alias in node.names:
                if forbidden is None or alias.name in forbidden:
                    uses.append(f"{node.lineno}: from {node.module} import {alias.name}")
                elif node.module == "datetime":
                    modules[alias.asname or alias.name] = "datetime"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            module = modules.get(root.id) if isinstance(root, ast.Name) else None
            forbidden = FORBIDDEN.get(module or "", set())
            if module in FORBIDDEN and (forbidden is None or node.attr in forbidden):
                uses.append(f"{node.lineno}: {module}.{node.attr}")
    return uses
