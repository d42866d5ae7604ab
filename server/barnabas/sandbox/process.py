"""The child process of a sandbox: it calls one function after the other, until its parent closes the connection.

The rule: nothing of Trio is imported here, so that a child starts in some 50 ms; all limits are set before the first call.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys

from barnabas.sandbox.messages import LENGTH, Result, SandboxError, Work, decode, encode
from barnabas.system.processes import signal_when_parent_ends

NICENESS = 5
"""Lower priority than the event loop of the parent."""
_READ_BYTES = 1 << 20


def main(descriptor: int, memory_bytes: int, answer_bytes_max: int) -> None:
    """Process calls that arrive over a socket, within limits of memory, CPU time and size of a response."""
    signal_when_parent_ends(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    with socket.socket(fileno=descriptor) as parent:
        while (data := _receive(parent)) is not None:
            response, is_last = _respond(data, memory_bytes, answer_bytes_max)
            parent.sendall(response)
            if is_last:
                return


def _receive(parent: socket.socket) -> bytearray | None:
    """Return the bytes of the next message; None once the parent has closed the connection."""
    data = bytearray()
    length = LENGTH.size
    while len(data) < length:
        part = parent.recv(min(length - len(data), _READ_BYTES))
        if not part:
            return None
        data += part
        if length == LENGTH.size and len(data) == length:
            length += LENGTH.unpack(data)[0]
    return data[LENGTH.size :]


def _respond(data: bytearray, memory_bytes: int, answer_bytes_max: int) -> tuple[bytes, bool]:
    """Return the response of a call, and whether the child ends with it."""
    try:
        result = _call(data)
        response = encode(result)
        if len(response) > answer_bytes_max:
            error = SandboxError(f"its result has more than {answer_bytes_max >> 20} MiB")
            return encode(Result(error=error)), False
    except MemoryError:
        error = SandboxError(f"it needs more than {memory_bytes >> 20} MiB of memory")
        return encode(Result(error=error, ends_child=True)), True
    return response, result.ends_child


def _call(data: bytearray) -> Result:
    try:
        work: Work = decode(data)
        _limit_cpu_time(work.seconds)
        return Result(work.function(*work.arguments))
    except MemoryError:
        raise
    except RecursionError:
        return Result(error=SandboxError("it is nested too deeply"))
    except Exception as error:
        return Result(error=_sendable(error))


def _sendable(error: Exception) -> Exception:
    """Return an error that the parent can read: itself, or a SandboxError with its text where a pickle loses it."""
    try:
        decode(encode(error)[LENGTH.size :])
    except Exception:
        return SandboxError(f"{type(error).__name__}: {error}")
    return error


def _limit_cpu_time(seconds: float) -> None:
    """Make the operating system end this process after this much more CPU time."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(usage.ru_utime + usage.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
