"""A broker as a process: what a signal does when, what serves beside it, its ready line, and its exit code."""

from __future__ import annotations

import errno
import io
import signal
from importlib.machinery import EXTENSION_SUFFIXES
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.app import Stopping
from barnabas.broker.process import say_ready
from barnabas.broker.signals import Stopper, code_of, exit_code
from barnabas.broker.startup import METRICS, StartupError, explained, parse_endpoint, parse_metrics_address
from barnabas.config.loading import BrokerConfig
from barnabas.errors import StorageError
from barnabas.network.transport import UnknownHostError
from barnabas.serving import connection

CODE = code_of(connection.__file__)

# --- signals ----------------------------------------------------------------------------------------------------------


class Signals:
    """Signals that come when a test says."""

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[int](10)

    def __aiter__(self) -> Any:
        return self.receive

    async def one(self, number: int = signal.SIGTERM) -> None:
        self.send.send_nowait(number)
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("may_break_off", [False, True])
async def test_signal_during_start_interrupts_only_what_may_wait(may_break_off: bool) -> None:
    stopper, signals, stops = Stopper(may_break_off_start=may_break_off), Signals(), []
    broker: Any = SimpleNamespace(stop=lambda: stops.append("stop"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stopper.run, signals)  # type: ignore[arg-type]
        await signals.one()
        assert stopper.starting.cancel_called is may_break_off
        assert stops == []
        stopper.has_started(broker)
        await trio.testing.wait_all_tasks_blocked()
        assert stops == ["stop"] * (not may_break_off), "a start that goes on is followed by the stop"
        await signals.one(signal.SIGINT)
        assert len(stops) == 1 + (not may_break_off)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stop_is_asked_for_or_comes_of_a_failure(fails: bool) -> None:
    stopping = Stopping()
    assert (stopping.was_asked, stopping.has_failed) == (False, False)
    (stopping.fail if fails else stopping.ask)()
    with trio.fail_after(1):
        await stopping.wait()
    assert (stopping.was_asked, stopping.has_failed) == (True, fails)


# --- the ready line ---------------------------------------------------------------------------------------------------


def ready(*, metrics: str | None = None, member: bool = False) -> Any:
    image = SimpleNamespace(cluster_id="cluster")
    services = SimpleNamespace(
        config=BrokerConfig({"log.dirs": "/a b,/c"}), broker_id=7, metadata=SimpleNamespace(image=image)
    )
    return SimpleNamespace(
        listeners=[], services=services, bootstrap="h:9092", participation=object() if member else None,
        metrics_address=SimpleNamespace(url=metrics) if metrics else None,
    )  # fmt: skip


def test_ready_line_names_each_place_and_the_data_last(capsys: pytest.CaptureFixture[str]) -> None:
    say_ready(ready())
    begin, end = "barnabas is ready: bootstrap.servers=h:9092", f"code={CODE} data=/a b,/c\n"
    assert capsys.readouterr().out == f"{begin} {end}"
    say_ready(ready(metrics="http://m", member=True), " registry=http://r")
    middle = "metrics=http://m registry=http://r cluster=cluster broker.id=7"
    assert capsys.readouterr().out == f"{begin} {middle} {end}"


@pytest.mark.parametrize(("suffix", "code"), [(".py", "interpreted"), (EXTENSION_SUFFIXES[0], "compiled")])
def test_code_is_compiled_or_interpreted_by_its_file(suffix: str, code: str) -> None:
    assert code_of(f"/x/connection{suffix}") == code


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_at_a_terminal_is_told_how_to_stop_it() -> None:
    say_ready(ready(), output=(terminal := Terminal()))
    assert terminal.getvalue().splitlines()[1:] == ["Clients connect to h:9092; Ctrl-C stops the broker."]


class Broken(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_broker_that_cannot_report_ready_does_not_serve() -> None:
    with pytest.raises(StartupError, match="Input/output error"):
        say_ready(ready(), output=Broken())


# --- the exit code ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "code", "lines"),
    [
        (0, 0, []),
        (1, 1, []),
        (StartupError("no port"), 1, ["barnabas: no port"]),
        (
            ExceptionGroup("", [StartupError("no port"), StorageError("/d", OSError(5, "broken"))]),
            1,
            ["barnabas: no port", "broken"],
        ),
    ],
)
def test_failed_start_is_a_line_and_a_code(
    capsys: pytest.CaptureFixture[str], outcome: Any, code: int, lines: list[str]
) -> None:
    def work() -> int:
        if isinstance(outcome, Exception):
            raise outcome
        return int(outcome)

    assert exit_code(work) == code
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == len(lines)
    for text, line in zip(lines, printed, strict=True):
        assert text in line


def test_a_defect_is_no_line_but_a_traceback() -> None:
    with pytest.raises(KeyError, match="defect"):
        exit_code(lambda: dict[str, int]()["defect"])


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "endpoint", "reason"),
    [
        (OSError(errno.EADDRINUSE, "in use"), "A://h:1", r"A://h:1: port 1 is in use.*--listen HOST:PORT"),
        (OSError(errno.EADDRINUSE, "in use"), f"{METRICS}=h:1", r"port 1 is in use.*--metrics HOST:PORT"),
        (OSError(errno.EACCES, "denied"), "A://h:1", r"A://h:1: no permission for port 1; choose one above 1023"),
        (OSError(errno.EADDRNOTAVAIL, "not here"), "A://h:1", r"cannot listen on A://h:1: not here$"),
        (OSError("strange"), "A://h:1", r"cannot listen on A://h:1: strange$"),
        (UnknownHostError(-2, "unknown"), "A://h:1", r"A://h:1: host 'h' is not known \(unknown\)"),
    ],
)  # fmt: skip
def test_what_keeps_an_address_from_being_bound_is_explained(
    error: OSError, endpoint: str, reason: str
) -> None:
    with pytest.raises(StartupError, match=reason), explained(endpoint, "h", 1):
        raise error


def test_an_address_of_metrics_is_a_host_and_a_port() -> None:
    assert parse_metrics_address(" h:9404 ") == ("h", 9404)
    for text in ("h", "h:x", "h:65536"):
        with pytest.raises(StartupError, match=rf"metrics.listener={text} is not of the form HOST:PORT"):
            parse_metrics_address(text)
    with pytest.raises(StartupError, match=r"^advertised.listeners 'h:1' .*: --advertise HOST:PORT"):
        parse_endpoint("h:1", "advertised.listeners", "--advertise")
