"""Exit codes: each way to end of the reference, with each command, by processes that end so."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from barnabas.ending import DONE, ENDS, SERVERS
from barnabas.testing.running import RunningBroker
from tests.support.systems import children, limit
from tests.support.watched import WAIT_S, Process

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PROGRAM = (sys.executable, "-m", "barnabas")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
DEFECT = """
import sys
import trio
from barnabas import cli
from barnabas.client import sockets
from barnabas.tools.logtool import command, storage_command

def broken(*arguments, **options):
    raise RuntimeError("a defect")

trio.run = sockets.socket_client = command.find_place = storage_command.quorum_files = broken
sys.exit(cli.main(sys.argv[1:]))
"""


class Place:
    """A place to try one command in: a directory, and the processes that end with the test."""

    def __init__(
        self, command: str, directory: Path, stack: ExitStack, request: pytest.FixtureRequest
    ) -> None:
        self.command = command
        self.directory = directory
        self._stack = stack
        self._request = request
        self._count = 0

    def start(self, *arguments: str, program: Sequence[str] = PROGRAM) -> Process:
        """Start `barnabas` with arguments."""
        self._count += 1
        process = Process([*program, *arguments], self.directory / f"{self._count}.log")
        self._stack.callback(process.close)
        return process

    def data(self) -> str:
        return str(self.directory / "data")

    def arguments(self, port: int = 0) -> list[str]:
        """Arguments that start the command at its usual work, the same data each time."""
        listen = ["--listen", f"127.0.0.1:{port}"]
        serve = ["serve", *listen, "--data", self.data()]
        return {
            "serve": serve,
            "serve --workers": [*serve, "--workers", "2"],
            "cluster": ["cluster", "--brokers", "1", "--dir", self.data(), "--port", str(port)],
            "test-server": ["test-server", *listen, "--stay"],
            "zookeeper": ["zookeeper", *listen, "--data", self.data()],
            "tap": ["tap", "127.0.0.1:1", *listen],
            "console": ["console", "--bootstrap", "127.0.0.1:1", *listen],
        }[self.command]

    def serving(self, *more: str, port: int = 0) -> tuple[Process, str]:
        """A server of the command, and its address."""
        process = self.start(*self.arguments(port), *more)
        ready = {
            "test-server": r'"bootstrap_servers": "([^"]+)',
            "zookeeper": r"zookeeper\.connect=(\S+)",
            "tap": r"is ready: (\S+)",
            "console": r"is ready: console=http://(\S+)",
        }
        return process, process.until(ready.get(self.command, r"is ready: bootstrap\.servers=([^ ,]+)"))

    def broker(self, *settings: str) -> str:
        """The address of a broker: of the one that all share, or of another one with these settings."""
        if not settings:
            return self.recording()[1]
        running = RunningBroker(dict(setting.split("=", 1) for setting in settings))
        self._stack.callback(running.close)
        running.start()
        return running.bootstrap

    def log_dir(self) -> Path:
        """The log dir of a broker that has stopped, with a topic of some records."""
        broker = RunningBroker(data=self.data())
        with broker:
            produce(broker.bootstrap)
        return Path(self.data())

    def recording(self) -> tuple[str, str]:
        """A session that a broker answers as it did, and its address."""
        path, address = self._request.getfixturevalue("recording")
        return path, address

    def differing(self) -> list[str]:
        """The arguments of a replay to a broker that does not answer as the recorded one."""
        return ["replay", self.recording()[0], "--to", self.broker("auto.create.topics.enable=false")]

    def work(self) -> list[str]:
        """The arguments of a command that does one thing."""
        if self.command == "log":
            return ["log", "verify", str(self.log_dir())]
        if self.command == "replay":
            path, address = self.recording()
            return ["replay", path, "--to", address]
        if self.command == "storage":
            return ["storage", "random-uuid"]
        if self.command in ("probe", "doctor"):
            return [self.command, self.broker()]
        if self.command == "topics":
            return ["topics", "list", "-b", self.broker()]
        return ["conform", self.broker(), "--select", "ApiVersions", "--random", "0"]


def produce(bootstrap: str, *, seconds: float = WAIT_S) -> None:
    """Send a record to a topic, in vain perhaps."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce("t", b"x" * 1000)
    producer.flush(seconds)


def spoil_disk(pid: int) -> None:
    """Have every write to a file fail, beyond what its size is by now."""
    limit(pid, resource.RLIMIT_FSIZE, (1, 1))


# --- the ways ------------------------------------------------------------------------------------------------------


def by_signals(place: Place) -> Iterator[int]:
    """Each signal for `serve`, one of them for each of the others, which have the same handlers."""
    first = SERVERS.index(place.command) % len(SIGNALS)
    for number in SIGNALS if place.command == "serve" else SIGNALS[first : first + 1]:
        process, _ = place.serving()
        process.process.send_signal(number)
        yield process.code()


def by_control_api(place: Place) -> Iterator[int]:
    more = ["--control", "127.0.0.1:0"] if place.command == "serve" else []
    process, _ = place.serving(*more)
    url = urlsplit(process.until(r'control(?:=|_url": ")(http://[^ "]+)'))
    connection = HTTPConnection(str(url.hostname), url.port)
    connection.request("POST", "/v1/broker/stop")
    with suppress(OSError):  # it may end before its answer
        connection.getresponse().read()
    yield process.code()


def by_input(place: Place) -> Iterator[int]:
    process = place.start("test-server")
    process.until("(bootstrap_servers)")
    assert process.process.stdin is not None
    process.process.stdin.close()
    yield process.code()


def by_work(place: Place) -> Iterator[int]:
    yield place.start(*place.work()).code()


def by_finding(place: Place) -> Iterator[int]:
    if place.command == "log":
        (path,) = (place.log_dir() / "t-0").glob("*.log")
        data = bytearray(path.read_bytes())
        data[-10] ^= 1
        path.write_bytes(data)
        yield place.start("log", "verify", place.data()).code()
    elif place.command == "replay":
        yield place.start(*place.differing()).code()
    elif place.command == "doctor":
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        yield place.start("doctor", place.broker(f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}")).code()
    else:
        wrong = "ApiVersions -> error=UNKNOWN_SERVER_ERROR"
        process = place.start("serve", "--listen", "127.0.0.1:0", "--ephemeral", "--fault", wrong)
        address = process.until(r"is ready: bootstrap\.servers=(\S+)")
        yield place.start("conform", address, "--select", "ApiVersions", "--random", "0").code()


def by_wrong_option(place: Place) -> Iterator[int]:
    name, *workers = place.command.split()
    more = [*workers, "2"] if workers else []
    yield place.start(name, *more, "--no-such-option").code()
    if place.command in ("serve", "cluster", "test-server"):
        for setting in ("no.such.setting=1", "num.partitions=many"):
            yield place.start(*place.arguments(), "--set", setting).code()


def by_missing_file(place: Place) -> Iterator[int]:
    missing = ["--config", str(place.directory / "missing.properties")]
    if place.command == "storage":
        yield place.start("storage", "info", *missing).code()
    else:
        yield place.start(*place.arguments(), *missing).code()


def by_used_port(place: Place) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield place.start(*place.arguments(taken.getsockname()[1])).code()


def by_used_data(place: Place) -> Iterator[int]:
    if place.command in SERVERS:
        place.serving()
        yield place.start(*place.arguments()).code()
    else:
        server = place.start("serve", "--listen", "127.0.0.1:0", "--data", place.data())
        produce(server.until(r"is ready: bootstrap\.servers=(\S+)"))
        doing = {
            "log": ["log", "repair", place.data()],
            "storage": ["storage", "format", "--data", place.data()],
        }
        yield place.start(*doing[place.command]).code()


def by_lost_disk(place: Place) -> Iterator[int]:
    process, address = place.serving()
    produce(address)
    spoil_disk(process.process.pid)
    produce(address, seconds=0.5)
    yield process.code()
    assert "no log dir works any more" in process.said()


def by_every_broker(place: Place) -> Iterator[int]:
    process, address = place.serving()
    produce(address)
    for pid in children(process.process.pid):
        spoil_disk(pid)
    produce(address, seconds=0.5)
    yield process.code()
    assert "has ended (exit code 1), 0 of 1 are left" in process.said()


def by_every_worker(place: Place) -> Iterator[int]:
    process, _ = place.serving()
    for path in Path(place.data()).glob("worker-*.properties"):
        path.write_text("num.partitions=many\n")
    for pid in children(process.process.pid):
        os.kill(pid, signal.SIGKILL)
    yield process.code()
    assert "no worker stays up" in process.said()


def by_full_disk(place: Place) -> Iterator[int]:
    if place.command == "tap":
        broker = place.broker()
        process = place.start(
            "tap", broker, "--listen", "127.0.0.1:0", "--pcap", str(place.directory / "pcap"), "--quiet"
        )
        address = process.until(r"is ready: (\S+)")
        spoil_disk(process.process.pid)
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=WAIT_S)
        process.process.terminate()
    else:
        process, address = place.serving()
        client = KazooClient(address)
        client.start()
        spoil_disk(process.process.pid)
        client.create_async("/a", b"")
        process.code()
        client.stop()
        client.close()
    yield process.code()


def by_missing_zookeeper(place: Place) -> Iterator[int]:
    zookeeper = ["--zookeeper", "127.0.0.1:1"]
    wait = ["--set", "zookeeper.connection.timeout.ms=500"]
    yield place.start(*place.arguments(), *zookeeper, *wait).code()


def by_missing_broker(place: Place) -> Iterator[int]:
    if place.command == "replay":
        path, _ = place.recording()
        yield place.start("replay", path, "--to", "127.0.0.1:1").code()
    elif place.command == "topics":
        yield place.start("topics", "list", "-b", "127.0.0.1:1").code()
    else:
        yield place.start(place.command, "127.0.0.1:1").code()


def by_missing_topic(place: Place) -> Iterator[int]:
    yield place.start("topics", "describe", "missing", "-b", place.broker()).code()


def by_missing_confirmation(place: Place) -> Iterator[int]:
    yield place.start("topics", "delete", "t", "-b", place.broker()).code()


def by_closed_output(place: Place) -> Iterator[int]:
    if place.command == "replay":
        arguments = place.differing()
    else:
        arguments = place.arguments() if place.command in SERVERS else place.work()
    for redirection in (">&-", ">/dev/full") if place.command in ("serve", "tap", "topics") else (">&-",):
        if place.command == "tap":  # it writes of traffic alone
            arguments = ["tap", place.broker(), "--listen", "127.0.0.1:0"]
        shell = ("sh", "-c", f'exec "$@" {redirection}', "sh", *PROGRAM)
        process = place.start(*arguments, program=shell)
        if place.command == "tap":
            AdminClient({"bootstrap.servers": process.until(r"is ready: (\S+)")}).list_topics(timeout=WAIT_S)
            process.process.terminate()
        yield process.code()


def by_reader(place: Place) -> Iterator[int]:
    arguments = place.differing() if place.command == "replay" else place.work()
    shell = ("bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "bash", *PROGRAM)
    yield place.start(*arguments, program=shell).code()


def by_ctrl_c(place: Place) -> Iterator[int]:
    """A command that waits: for a broker that never answers, or to open a pipe without a writer."""
    if place.command in ("log", "storage"):
        waits = "import os\nfrom barnabas import cli\nfrom barnabas.tools.logtool import command, storage_command\n"
        waits += "import sys, time\nlater = lambda *_: print('works', flush=True) or time.sleep(60)\n"
        waits += "command.find_place = storage_command._config = later\nsys.exit(cli.main(sys.argv[1:]))"
        doing = {"log": ["log", "verify", place.data()], "storage": ["storage", "info"]}
        process = place.start(*doing[place.command], program=(sys.executable, "-c", waits))
        process.until("(works)")
        process.process.send_signal(signal.SIGINT)
        yield process.code()
        return
    recorded = place.recording()[0] if place.command == "replay" else ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        arguments = ["replay", recorded, "--to", address] if recorded else [place.command, address]
        if place.command == "topics":
            arguments = ["topics", "list", "-b", address]
        process = place.start(*arguments)
        silent.accept()
        process.process.send_signal(signal.SIGINT)
        yield process.code()


def by_defect(place: Place) -> Iterator[int]:
    if place.command in SERVERS:
        arguments = place.arguments()
    elif place.command == "replay":
        arguments = ["replay", place.recording()[0], "--to", "127.0.0.1:1"]
    else:
        arguments = {
            "log": ["log", "verify", place.data()],
            "storage": ["storage", "format", "--data", place.data()],
            "probe": ["probe", "127.0.0.1:1"],
            "conform": ["conform", "127.0.0.1:1"],
            "topics": ["topics", "list", "-b", "127.0.0.1:1"],
            "doctor": ["doctor", "127.0.0.1:1"],
        }[place.command]
    process = place.start(*arguments, program=(sys.executable, "-c", DEFECT))
    yield process.code()
    assert "RuntimeError: a defect" in process.said()


WAYS: dict[str, Callable[[Place], Iterator[int]]] = {
    "SIGTERM, SIGINT, SIGHUP or SIGQUIT while it serves": by_signals,
    "`POST /v1/broker/stop`": by_control_api,
    "its standard input ends": by_input,
    "the work is done": by_work,
    "damage was found, an answer that differs, a case that fails": by_finding,
    "an option or a setting is wrong": by_wrong_option,
    "a file of settings is missing": by_missing_file,
    "its port is in use": by_used_port,
    "another process uses its data": by_used_data,
    "the last log dir fails": by_lost_disk,
    "every broker has ended": by_every_broker,
    "no worker stays up": by_every_worker,
    "what it keeps cannot be written any more": by_full_disk,
    "ZooKeeper does not answer while it starts": by_missing_zookeeper,
    "no broker answers": by_missing_broker,
    "a topic, group or the like is not there": by_missing_topic,
    "a destructive command is not confirmed": by_missing_confirmation,
    "standard output cannot be written": by_closed_output,
    "the reader of its output closes it, as `head`": by_reader,
    "Ctrl-C": by_ctrl_c,
    "a defect, with its traceback": by_defect,
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A recorded session, and the broker that answered so."""
    directory = tmp_path_factory.mktemp("recording")
    path = directory / "session.pcapng"
    with RunningBroker() as broker:
        produce(broker.bootstrap)
        command = [*PROGRAM, "tap", broker.bootstrap, "--listen", "127.0.0.1:0", "--pcap", str(path)]
        tap = Process(command, directory / "tap.log")
        AdminClient({"bootstrap.servers": tap.until(r"is ready: (\S+)")}).list_topics("t", timeout=WAIT_S)
        tap.process.terminate()
        assert tap.code() == DONE
        tap.close()
        yield str(path), broker.bootstrap


@pytest.mark.parametrize(
    ("how", "command", "expected"), [(end.how, command, end.code) for end in ENDS for command in end.commands]
)
def test_a_process_ends_with_the_code_of_the_reference(
    how: str, command: str, expected: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        place = Place(command, tmp_path, stack, request)
        codes = list(WAYS[how](place))
        output = [path.read_text(errors="replace") for path in tmp_path.glob("[0-9]*.log")]
        assert codes == [expected] * len(codes), output
        assert codes
        if how != "a defect, with its traceback":
            assert not any("Traceback" in text for text in output), output
            assert not any("sub-exception" in text for text in output), output


def test_the_reference_names_every_way_once() -> None:
    assert list(WAYS) == list(dict.fromkeys(end.how for end in ENDS))
    pairs = [(end.how, command) for end in ENDS for command in end.commands]
    assert len(pairs) == len(set(pairs))
    assert {end.code for end in ENDS if end.code == DONE} == {0}


@pytest.mark.parametrize("command", SERVERS)
def test_a_hangup_that_is_ignored_stays_ignored(
    command: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        place = Place(command, tmp_path, stack, request)
        nohup = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh", *PROGRAM)
        process = place.start(*place.arguments(), program=nohup)
        process.until("(is ready: |bootstrap_servers)")
        process.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert process.process.poll() is None
        process.process.terminate()
        assert process.code() == DONE
