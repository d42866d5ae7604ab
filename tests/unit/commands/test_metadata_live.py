"""`barnabas metadata` against controllers that answer from a log of Kafka 4.3.1: leaders, others, and none."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.cli import main
from barnabas.wire import registry
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.headers import encode_response, parse_request_header
from tests.support.metadata_leader import BATCHES, GOLDEN, SimulatedLeader

CONTROLLER = {1: (4, 18), 18: (0, 4), 59: (0, 1)}
BROKER = {1: (4, 18), 3: (0, 13), 18: (0, 4)}


class Controller:
    """A node on loopback that answers with what a simulated leader says."""

    def __init__(self, leader: SimulatedLeader, versions: dict[int, tuple[int, int]]) -> None:
        self.leader = leader
        self.versions = versions
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                header = parse_request_header(frame)
                body = registry.request_codec(header.api_key)
                request = body.decode_whole(frame, header.api_version, header.body_position)
                chunks = encode_response(
                    header.api_key,
                    header.api_version,
                    header.correlation_id,
                    self._answer(header.api_key, request),
                )
                connection.sendall(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]

    def _answer(self, key: int, request: Any) -> Any:
        if key == 18:
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersionsResponse.ApiVersion(api, first, last)
                    for api, (first, last) in self.versions.items()
                ]
            )
        return self.leader.answer(request)


@pytest.fixture
def controllers() -> Iterator[Any]:
    started: list[Controller] = []

    def start(
        seed: int = 1, *, versions: dict[int, tuple[int, int]] = CONTROLLER, **options: Any
    ) -> Controller:
        started.append(Controller(SimulatedLeader(seed, **options), versions))
        return started[-1]

    yield start
    for controller in started:
        controller.close()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(["metadata", *arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("snapshot", [False, True], ids=["log", "snapshot"])
def test_live_quorum_shows_what_its_directory_shows(
    controllers: Any, capsys: pytest.CaptureFixture[str], snapshot: bool
) -> None:
    controller = controllers(snapshot=snapshot)
    live = run(capsys, "show", "--json", "--bootstrap-controller", controller.address)
    assert live == run(capsys, "show", "--json", "--dir", str(GOLDEN))
    assert live[0] == 0


def test_controller_that_does_not_lead_sends_to_the_leader(
    controllers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = controllers()
    other = controllers(leads=False, address=("127.0.0.1", leader.port))
    code, text, _ = run(capsys, "show", "topics", "--json", "--bootstrap-controller", other.address)
    assert code == 0
    assert [topic["name"] for topic in json.loads(text)["topics"]] == ["orders", "payments", "shared"]


def test_controller_that_does_not_answer_is_passed_over(
    controllers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    addresses = f"127.0.0.1:{dead},{controllers().address}"
    assert run(capsys, "show", "quorum", "--bootstrap-controller", addresses)[0] == 0
    code, _, errors = run(capsys, "show", "quorum", "--bootstrap-controller", f"127.0.0.1:{dead}")
    assert code == 1
    assert errors.startswith("barnabas metadata show: no controller answers: 127.0.0.1:")


def test_leader_that_is_dead_is_replaced_by_the_next(
    controllers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    controller = controllers(leads=False, address=("127.0.0.1", dead))
    timer = threading.Timer(1.0, lambda: setattr(controller.leader, "leads", True))
    timer.start()
    code, _, errors = run(capsys, "show", "quorum", "--bootstrap-controller", controller.address)
    timer.join()
    assert (code, errors) == (0, "")


def test_quorum_without_a_leader_is_an_error_in_time(
    controllers: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = controllers(leads=False, leader_id=-1)
    arguments = ("--bootstrap-controller", controller.address, "--timeout", "0.5")
    code, _, errors = run(capsys, "show", "quorum", *arguments)
    assert code == 1
    assert "no controller leads the quorum" in errors


def test_listener_of_a_broker_is_told_apart(controllers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    broker = controllers(versions=BROKER)
    code, _, errors = run(capsys, "show", "--bootstrap-controller", broker.address)
    assert code == 1
    assert f"{broker.address} is no listener of a controller" in errors


def test_watch_shows_changes_from_now_on(controllers: Any, capsys: pytest.CaptureFixture[str]) -> None:
    controller = controllers()
    leader = controller.leader
    late = [pair for pair in BATCHES if pair[0].base_offset >= 67]
    leader.batches, leader.end = [pair for pair in BATCHES if pair[0].base_offset < 67], 67
    timer = threading.Timer(1.0, lambda: (leader.batches.extend(late), setattr(leader, "end", 105)))
    timer.start()
    arguments = ("watch", "--bootstrap-controller", controller.address, "--limit", "3", "--json")
    code, text, _ = run(capsys, *arguments)
    timer.join()
    rows = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    assert [(row["offset"], row["record"], row["entry"]) for row in rows] == [
        (67, "PartitionChange", "shared-0"),
        (70, "UnregisterBroker", "2"),
        (71, "Config", "topic orders cleanup.policy"),
    ]
    assert rows[2]["change"] == "removed: value=compact,delete"
