"""Completion by the shells themselves, in a terminal: what TAB makes of a line, and what the line then means."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.testing.running import RunningBroker, import_path
from compat.kit.readiness import is_readable

from .conftest import ROOT

pytestmark = pytest.mark.e2e

WAIT_S = 60
GROUPS = ("team:a", "a,b", "two words", 'quo"te', "dollar$x")
PROGRAM = """#!/bin/sh
if [ -n "$_BARNABAS_COMPLETE" ] || [ "$1" = completion ]; then exec {python} -m barnabas "$@"; fi
printf '<%s>' "$@"; echo ' is run'
"""
"""A command that completes as ours does, and prints its arguments when it is run."""
SET_UP = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(barnabas completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(barnabas completion zsh)"'),
}
LINES = {
    "barnabas topics tr\t": "<topics><trim>",
    "barnabas serve --ephe\t": "<serve><--ephemeral>",
    "barnabas topics describe ord\t": "<topics><describe><orders>",
    "barnabas groups describe team:\t": "<groups><describe><team:a>",
    "barnabas groups describe a\t": "<groups><describe><a,b>",
    "barnabas groups describe tw\t": "<groups><describe><two words>",
    "barnabas groups describe 'tw\t": "<groups><describe><two words>",
    "barnabas groups describe quo\t": '<groups><describe><quo"te>',
    "barnabas groups describe dol\t": "<groups><describe><dollar$x>",
    "barnabas consume orders --group=te\t": "<consume><orders><--group=team:a>",
    "barnabas consume orders --group=team:\t": "<consume><orders><--group=team:a>",
    "barnabas produce orders --file=rec\t": "<produce><orders><--file=records.txt>",
    "barnabas produce orders --file rec\t": "<produce><orders><--file><records.txt>",
}
"""Lines typed up to a TAB, and the arguments with which the command is run then."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with a topic, and groups with names that mean something to a shell."""
    with RunningBroker(data=tmp_path_factory.mktemp("completion")) as broker:
        for group in GROUPS:
            consumer = Consumer({
                "bootstrap.servers": broker.bootstrap, "group.id": group, "allow.auto.create.topics": True,
            })  # fmt: skip
            consumer.list_topics("orders", timeout=WAIT_S)
            consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
            consumer.close()
        yield broker.bootstrap


@pytest.fixture
def environment(bootstrap: str, tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds the command, in a directory with a file."""
    program = tmp_path / "barnabas"
    program.write_text(PROGRAM.format(python=shlex.quote(sys.executable)))
    program.chmod(0o755)
    (tmp_path / "records.txt").touch()
    changed = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": import_path(ROOT),
        "BARNABAS_BOOTSTRAP": bootstrap,
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "TERM": "dumb",
    }
    return {**os.environ, **changed}


def skip_without(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed (Debian: apt-get install {shell})")


@contextmanager
def terminal(command: list[str], environment: dict[str, str], directory: Path) -> Iterator[int]:
    """Run a shell in a terminal of its own; yields the descriptor of its other end."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        cwd=directory,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        try:
            yield ours
        finally:
            process.kill()
            os.close(ours)


def read_until(descriptor: int, text: str) -> str:
    """Read what a terminal shows until a text is among it."""
    shown, deadline = "", time.monotonic() + WAIT_S
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        while text not in shown:
            assert is_readable(file, deadline - time.monotonic()), shown
            shown += os.read(descriptor, 65536).decode(errors="replace")
    return shown


@pytest.mark.parametrize("shell", SET_UP)
def test_tab_completes_words_that_a_shell_would_split(
    shell: str, environment: dict[str, str], tmp_path: Path
) -> None:
    skip_without(shell)
    command, set_up = SET_UP[shell]
    with terminal(command, environment, tmp_path) as descriptor:
        os.write(descriptor, f"{set_up}; echo read''y\n".encode())
        read_until(descriptor, "ready")
        for line, expected in LINES.items():
            os.write(descriptor, f"{line}\n".encode())
            assert f"{expected} is run" in read_until(descriptor, "is run"), line


def test_fish_completes_whole_words(environment: dict[str, str], tmp_path: Path) -> None:
    skip_without("fish")
    lines = [line.removesuffix("\t") for line in LINES]
    script = "".join(f"complete -C {shlex.quote(line)}; echo\n" for line in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"barnabas completion fish | source\n{script}"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
        timeout=WAIT_S,
    )
    offered = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    last_words = [expected.removesuffix(">").rpartition("<")[2] for expected in LINES.values()]
    assert [word for word in offered if word] == last_words, done.stderr
