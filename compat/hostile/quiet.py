"""A quiet client: one small record at a time and a fetch of it, each timed, in a separate process.

    python -m compat.hostile.quiet HOST:PORT TOPIC     commands on stdin, one JSON object a line on stdout

`begin` discards the latencies so far, `end` prints those since, `check` reads back acknowledged records, `quit` ends.
The rule: it is a separate process, so that the attacker's Python does not delay it, and uses only APIs that all kinds of
brokers serve.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from compat.hostile.attack import NoAnswer, Peer, PeerClosed, decoded, fetch_values, produce_values
from compat.hostile.batches import one_record
from compat.hostile.messages import frame
from compat.kit.readiness import is_readable

PAUSE_S = 0.001
NUMBER = struct.Struct(">q")
COMMAND_TIMEOUT_S = 150
FETCH_BYTES_MAX = 1 << 20


class Quiet:
    """The loop: numbers 0, 1, 2, ... as records; the offsets of acknowledged ones are kept."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self.address = host, port
        self.topic = topic
        self.latencies_ms: list[float] = []
        self.problems: list[str] = []
        self.acknowledged: list[tuple[int, int]] = []
        self.number = 0
        self.position = 0
        self.peer = Peer(host, port)

    def turn(self) -> None:
        """Produce one record, and fetch it."""
        values = NUMBER.pack(self.number)
        try:
            answer = self._ask("Produce", 7, produce_values(self.topic, [(0, one_record(values))]))
            part = answer["Responses"][0]["PartitionResponses"][0]
            if part["ErrorCode"]:
                self.problems.append(f"produce was answered with error {part['ErrorCode']}")
                time.sleep(0.05)
                return
            self.acknowledged.append((self.number, part["BaseOffset"]))
            self.number += 1
            data = self._fetch(part["BaseOffset"])
            if values not in data:
                self.problems.append(f"what was just acknowledged at {part['BaseOffset']} is not there")
        except (PeerClosed, NoAnswer, OSError) as error:
            self.number += 1  # it may be there or not
            self.problems.append(f"{type(error).__name__}: {error}")
            self._connect_again()

    def check(self) -> list[str]:
        """Read back all records acknowledged since the last check; returns the problems."""
        expected = {offset: number for number, offset in self.acknowledged}
        self.acknowledged = []
        end = max(expected, default=-1) + 1
        while self.position < end:
            data = self._fetch(self.position)
            if not data:
                return [f"nothing can be read at offset {self.position} of {end}"]
            for offset, number in _numbers(data):
                if expected.pop(offset, number) != number:
                    return [f"another record than the acknowledged one is at offset {offset}"]
                self.position = offset + 1
        return [f"{len(expected)} acknowledged records are missing"] if expected else []

    def _ask(self, api: str, version: int, values: dict[str, Any]) -> dict[str, Any]:
        data = frame(api, version, values, client_id="quiet")
        began = time.perf_counter()
        self.peer.send(data)
        answer = self.peer.answer()
        self.latencies_ms.append((time.perf_counter() - began) * 1e3)
        return decoded(api, version, answer)

    def _fetch(self, offset: int) -> bytes:
        values = fetch_values(self.topic, [0], FETCH_BYTES_MAX, wait_ms=1000)
        values["Topics"][0]["Partitions"][0]["FetchOffset"] = offset
        answer = self._ask("Fetch", 11, values)
        return answer["Responses"][0]["Partitions"][0]["Records"] or b""

    def _connect_again(self) -> None:
        self.peer.close()
        while True:
            try:
                self.peer = Peer(*self.address)
                return
            except OSError:
                if is_readable(sys.stdin, 0.05):
                    return  # whoever asks learns of it by the problems


def _numbers(data: bytes) -> list[tuple[int, int]]:
    """(offset, number) of each whole batch, which has one record each with its value at the end."""
    numbers, at = [], 0
    while at + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        end = at + 12 + size
        if end > len(data):
            break
        numbers.append((offset, NUMBER.unpack_from(data, end - 9)[0]))
        at = end
    return numbers


def main() -> int:
    """Run until `quit` or the end of stdin."""
    host, _, port = sys.argv[1].rpartition(":")
    quiet = Quiet(host, int(port), sys.argv[2])
    print(json.dumps("ready"), flush=True)
    while True:
        if not is_readable(sys.stdin, 0):
            quiet.turn()
            time.sleep(PAUSE_S)
            continue
        command = sys.stdin.readline().strip()
        if command in ("", "quit"):
            return 0
        answer: Any = None
        if command == "begin":
            quiet.latencies_ms, quiet.problems = [], []
        elif command == "end":
            answer = {"latencies_ms": sorted(quiet.latencies_ms), "problems": quiet.problems[:5]}
        elif command == "check":
            try:
                answer = quiet.check()
            except (PeerClosed, NoAnswer, OSError) as error:
                answer = [f"cannot be read back: {type(error).__name__}: {error}"]
        print(json.dumps(answer), flush=True)


class QuietProcess:
    """The client as a child process; every call but `close` waits for its answer."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "compat.hostile.quiet", bootstrap, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        self._line()

    def begin(self) -> None:
        """Discard the measurements so far."""
        self._command("begin")

    def end(self) -> dict[str, Any]:
        """Return the latencies (ms, sorted) and the problems since `begin`."""
        answer: dict[str, Any] = self._command("end")
        return answer

    def check(self) -> list[str]:
        """Problems with the records that were acknowledged since the last check."""
        answer: list[str] = self._command("check")
        return answer

    def close(self) -> None:
        """End it, whatever it waits for."""
        self._process.kill()
        self._process.communicate()

    def _command(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> Any:
        assert self._process.stdout is not None
        if not is_readable(self._process.stdout, COMMAND_TIMEOUT_S):
            raise TimeoutError("the quiet client does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionError("the quiet client has ended")
        return json.loads(line)

    def __enter__(self) -> QuietProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


if __name__ == "__main__":
    sys.exit(main())
