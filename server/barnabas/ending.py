"""Ends of a process: the signals that request one, and the exit codes.

The rule: 0 means that the end was requested, or all work was done; any other end has another code, so that the supervisor
of the process (systemd, a container, a script) can distinguish them. The codes of `barnabas` are defined only here; the
reference is printed from `ENDS`.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

DONE = 0
FAILED = 1
USAGE_ERROR = 2
FOUND = 1
"""Of a command that compares, as of `diff`: it has found a difference, or damage. It fails with USAGE_ERROR's code."""
INTERRUPTED = 128 + int(signal.SIGINT)
"""Ctrl-C, of a command that does one thing and ends."""
UNREAD = 128 + int(signal.SIGPIPE)
"""The reader of its output has closed it: the code of programs that SIGPIPE kills."""

SERVERS = ("serve", "serve --workers", "cluster", "test-server", "zookeeper", "tap", "console")
COMPARING = ("log", "replay")
TOOLS = ("storage", "probe", "conform", "topics", "doctor")
"""`topics` stands for all commands that ask a cluster, but for `doctor`, which finds."""


def failed(command: str) -> int:
    """Return the exit code of a command that failed."""
    return USAGE_ERROR if command in COMPARING else FAILED


def end_signals() -> list[signal.Signals]:
    """Return the signals that stop a server cleanly; those that `nohup` or a similar program ignores stay ignored."""
    others = (signal.SIGHUP, signal.SIGQUIT)
    return [
        signal.SIGTERM,
        signal.SIGINT,
        *(number for number in others if signal.getsignal(number) is not signal.SIG_IGN),
    ]


class End(NamedTuple):
    """One way to end, for the reference and for the test that ends processes in this way."""

    how: str
    commands: tuple[str, ...]
    code: int


ENDS = (
    End("SIGTERM, SIGINT, SIGHUP or SIGQUIT while it serves", SERVERS, DONE),
    End("`POST /v1/broker/stop`", ("serve", "test-server"), DONE),
    End("its standard input ends", ("test-server",), DONE),
    End("the work is done", (*COMPARING, *TOOLS), DONE),
    End(
        "damage was found, an answer that differs, a case that fails",
        (*COMPARING, "conform", "doctor"),
        FOUND,
    ),
    End("an option or a setting is wrong", (*SERVERS, *COMPARING, *TOOLS), USAGE_ERROR),
    End("a file of settings is missing", ("serve", "serve --workers", "cluster", "storage"), USAGE_ERROR),
    End("its port is in use", SERVERS, FAILED),
    End(
        "another process uses its data",
        ("serve", "serve --workers", "cluster", "zookeeper", "storage"),
        FAILED,
    ),
    End("another process uses its data", ("log",), failed("log")),
    End("the last log dir fails", ("serve", "test-server"), FAILED),
    End("every broker has ended", ("cluster",), FAILED),
    End("no worker stays up", ("serve --workers",), FAILED),
    End("what it keeps cannot be written any more", ("zookeeper", "tap"), FAILED),
    End("ZooKeeper does not answer while it starts", ("serve", "cluster"), FAILED),
    End("no broker answers", ("probe", "conform", "topics", "doctor"), FAILED),
    End("no broker answers", ("replay",), failed("replay")),
    End("a topic, group or the like is not there", ("topics",), FAILED),
    End("a destructive command is not confirmed", ("topics",), FAILED),
    End("standard output cannot be written", (*SERVERS, *TOOLS), FAILED),
    End("standard output cannot be written", COMPARING, failed("log")),
    End("the reader of its output closes it, as `head`", (*COMPARING, *TOOLS), UNREAD),
    End("Ctrl-C", (*COMPARING, *TOOLS), INTERRUPTED),
    End("a defect, with its traceback", (*SERVERS, *TOOLS), FAILED),
    End("a defect, with its traceback", COMPARING, failed("log")),
)
