"""Code samples of documentation pages, and shell sessions in them, run as printed.

A session is an indented block that begins with a `$`. Each line with a `$` is a command; the lines after it are its output,
with `...` for parts that differ from run to run. A command with a last line `...` keeps running, in its own terminal, until
a line `^C`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SECONDS_MAX = 60
PAUSE_S = 0.3
CTRL_C = "^C"
GOES_ON = "..."
ASKS = re.compile(r"barnabas (groups (list|describe)|lag)\b")
"""Commands that may be repeated until a group has the printed state."""


def _text(page: str | Path) -> str:
    """Return the text of a page, named by a path from the root of the repository, or an absolute one."""
    return (ROOT / page).read_text()


def samples(page: str | Path, language: str) -> list[str]:
    """Return the blocks of a page that are fenced as code of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", _text(page), re.M | re.S)


@dataclass
class Step:
    """A command of a session and its printed output, or a Ctrl-C."""

    command: str
    printed: list[str] = field(default_factory=list)

    @property
    def runs_on(self) -> bool:
        """True for a command that is still running at the next step of the page."""
        return self.printed[-1:] == [GOES_ON]

    def is_told_by(self, output: str) -> bool:
        """Return whether an output matches the page; of a running command, whether it has all lines, in any order.

        Numbers of blanks count only if no part of the output differs from run to run.
        """
        if not any(GOES_ON in line for line in self.printed):
            return [line.rstrip() for line in output.splitlines() if line.strip()] == self.printed
        lines = [" ".join(line.split()) for line in output.splitlines() if line.strip()]
        patterns = [_pattern(line) for line in self.printed]
        if self.runs_on:
            return all(any(pattern.fullmatch(line) for line in lines) for pattern in patterns[:-1])
        return len(lines) == len(patterns) and all(
            pattern.fullmatch(line) for pattern, line in zip(patterns, lines, strict=True)
        )


def _pattern(line: str) -> re.Pattern[str]:
    """Return the pattern of lines that a printed line stands for, with single blanks."""
    return re.compile(re.escape(" ".join(line.split())).replace(re.escape(GOES_ON), ".*"))


def steps(page: str | Path) -> list[Step]:
    """Return the commands of all sessions of a page, in order."""
    parsed: list[Step] = []
    text = re.sub(r"^```.*?^```$", "", _text(page), flags=re.M | re.S)
    for block in re.findall(r"(?:^ {4}.*\n(?:\n+(?= {4}))?)+", text, re.M):
        lines = [line[4:] for line in block.splitlines()]
        if not lines[0].startswith(("$ ", CTRL_C)):
            continue
        for line in lines:
            if line == CTRL_C:
                parsed.append(Step(CTRL_C))
            elif line.startswith("$ "):
                parsed.append(Step(line[2:]))
            elif line.strip():
                parsed[-1].printed.append(line)
    return parsed


def spans(page: str | Path) -> list[str]:
    """Return the `barnabas` commands in backticks that send requests to a broker."""
    return re.findall(
        r"`(barnabas (?:doctor|(?:produce|consume|topics|groups|brokers|configs) [^`\n]+))`", _text(page)
    )


@contextmanager
def network() -> Iterator[list[str]]:
    """Create a network namespace, where all ports are free; yields the prefix of commands in it, or skips the test."""
    if shutil.which("ip") is None:
        pytest.skip("there is no ip command (Debian: apt-get install iproute2)")
    inside = "ip link set lo up && echo ready && exec sleep infinity"
    with subprocess.Popen(
        ["unshare", "--map-root-user", "--net", "sh", "-c", inside],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            if holder.stdout.readline() != "ready\n":
                pytest.skip(f"network namespaces are not permitted here: {holder.stderr.read().strip()}")
            yield ["nsenter", f"--target={holder.pid}", "--user", "--net", "--preserve-credentials"]
        finally:
            holder.kill()


@dataclass
class Terminal:
    """A started command, and the file of its output."""

    command: str
    process: subprocess.Popen[bytes]
    file: Path

    def output(self) -> str:
        """The whole output so far."""
        return self.file.read_text()

    def signal(self, number: int) -> None:
        """Send a signal to the process group of the command, if it still runs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)


class Shell:
    """A reader, with as many terminals for commands as necessary; all are closed at the end of the block."""

    def __init__(self, words: list[str], directory: Path, environment: dict[str, str]) -> None:
        self._words, self._directory = words, directory
        self._environment = {**os.environ, **environment}
        self._exports: list[str] = []
        self._terminals: list[Terminal] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in self._terminals:
            terminal.signal(signal.SIGKILL)
            terminal.process.wait()

    def follow(self, page: str | Path) -> None:
        """Run all sessions of a page. Commands without a Ctrl-C keep running."""
        for step in steps(page):
            self._take(step)

    def _take(self, step: Step) -> None:
        if step.command == CTRL_C:
            self._interrupt()
        elif step.command.startswith("export "):
            self._exports.append(step.command)
        elif step.runs_on:
            self._wait(step, self._start(step.command).output)
        elif ASKS.match(step.command):
            self._wait(step, lambda: self.run(step.command))
        else:
            output = self.run(step.command)
            assert step.is_told_by(output), _differs(step, output)

    def _start(self, command: str) -> Terminal:
        """Start a command in a new terminal."""
        file = Path(self._environment["HOME"]) / f"terminal-{time.monotonic_ns()}"
        with file.open("w") as output:
            process = subprocess.Popen(
                [*self._words, "sh", "-c", "\n".join([*self._exports, command])], cwd=self._directory,
                env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._terminals.append(Terminal(command, process, file))
        return self._terminals[-1]

    def run(self, command: str) -> str:
        """Run a command, which must succeed; returns its output."""
        terminal = self._start(command)
        code = terminal.process.wait(SECONDS_MAX)
        self._terminals.remove(terminal)
        assert code == 0, f"$ {command}\n{terminal.output()}"
        return terminal.output()

    def _wait(self, step: Step, look: Callable[[], str]) -> None:
        """Wait until the output of a command matches the page."""
        end = time.monotonic() + SECONDS_MAX
        while not step.is_told_by(output := look()):
            assert time.monotonic() < end, _differs(step, output)
            time.sleep(PAUSE_S)

    def _interrupt(self) -> None:
        """Press Ctrl-C in the terminal of the last started command that still runs."""
        terminal = self._terminals.pop()
        terminal.signal(signal.SIGINT)
        terminal.process.wait(SECONDS_MAX)
        assert "Traceback" not in terminal.output(), f"$ {terminal.command}\n{terminal.output()}"


def _differs(step: Step, output: str) -> str:
    return "\n".join([f"$ {step.command}", "the page has", *step.printed, "and it prints", output])


# --- all blocks of a page -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A block of code of a page: its language if it is fenced, and its text."""

    page: str
    language: str
    text: str
    is_example: bool = False
    """True for a program of docs/examples/, which the page prints (`tools/examples.py`)."""

    @property
    def lines(self) -> list[str]:
        """Its non-empty lines; lines that end with a backslash are joined with the next."""
        joined = re.sub(r" *\\\n *", " ", self.text)
        return [line.strip() for line in joined.splitlines() if line.strip()]

    @property
    def is_session(self) -> bool:
        """True for commands with their output."""
        return self.lines[0].startswith(("$ ", CTRL_C))


def blocks(page: str) -> list[Block]:
    """Return all blocks of code of a page, fenced or indented."""
    text = _text(page)
    fence = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.M | re.S)
    fenced = [Block(page, part[2], part[4], "docs/examples/" in part[3]) for part in fence.finditer(text)]
    indented = re.findall(r"(?:^ {4}.*\n(?:\n+(?= {4}))?)+", fence.sub("", text), re.M)
    return [*fenced, *(Block(page, "", block) for block in indented)]


def typed(line: str) -> str:
    """Return a line of a block without its comment, as a reader types it."""
    return re.split(r"\s+# ", line)[0].strip()
