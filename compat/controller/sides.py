"""A controller of Kafka's and one of ours, formatted and configured alike, each alone in its quorum.

The rule: only requests append to a log: no NoOp records, no session timeouts, no elections by timeout. So the records
between two requests are those of the first one, and offsets are the same on both sides.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from barnabas.log.format.properties import encode_uuid
from compat.kit.sides import PASSWORD, Side, StartError
from compat.kit.wire import Connection, Values, WireError, decode, encode_frame, message
from compat.metadata.quorum import HOST, METADATA, Node, OurController

NODE_ID = 1
DIRECTORY_ID = bytes([NODE_ID]) * 16
CLIENT_ADDRESS = bytes((127, 0, 0, 1))
USERS = ("admin", "alice")
START_TIMEOUT_S = 60
STABLE_S = 0.5
"""Time that a controller is active after an election before it is asked again."""
_NEVER_MS = "3600000"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "metadata.max.idle.interval.ms": "0",
    "broker.session.timeout.ms": _NEVER_MS,
    "unclean.leader.election.interval.ms": _NEVER_MS,
    "delegation.token.expiry.check.interval.ms": _NEVER_MS,
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.append.linger.ms": "0",
    "delegation.token.secret.key": "the key of tokens",
    "controller.listener.names": "CONTROLLER,ADMIN",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,ADMIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.admin.plain.sasl.jaas.config": " ".join(
        (_PLAIN, *(f'user_{user}="{PASSWORD}"' for user in USERS), ";")
    ),
}


@dataclass(frozen=True)
class ControllerSide(Side):
    """One controller. Requests of a user of the form `Type:name` are forwarded in an Envelope, as by a broker."""

    metadata_dir: Path = field(default=Path())

    def connect(self, client_id: str = "kit", user: str = "") -> Connection:
        """Return a new connection, after a login or for forwarded requests. Raises WireError."""
        if ":" in user:
            return Forwarding(HOST, self.port, user, client_id)
        return super().connect(client_id, user)

    def end(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the log, once the controller is active. Raises StartError.

        In an epoch other than `epoch`, it must have been active for a while: a controller that failed may fail again.
        """
        give_up = time.monotonic() + START_TIMEOUT_S
        since = time.monotonic()
        last = epoch
        while time.monotonic() < give_up:
            with self.connect() as connection:
                partition = described(connection)
                is_active = not partition["ErrorCode"] and self._is_active(connection)
            if not is_active or partition["LeaderEpoch"] != last:
                since, last = time.monotonic(), partition["LeaderEpoch"] if is_active else -1
            elif last == epoch or time.monotonic() - since > STABLE_S:
                return last, int(partition["CurrentVoters"][0]["LogEndOffset"])
            time.sleep(0.05)
        raise StartError(f"{self.name} is not active any more")

    @staticmethod
    def _is_active(connection: Connection) -> bool:
        return not connection.ask("ListPartitionReassignments", 0, {"Topics": []})["ErrorCode"]


class Forwarding(Connection):
    """Forwards requests in Envelopes, for a principal at an address, as a broker does."""

    def __init__(self, host: str, port: int, principal: str, client_id: str) -> None:
        super().__init__(host, port, client_id)
        self._principal = principal

    def ask(self, api: str, version: int, values: Values) -> Values:
        """Send a request in an Envelope; returns the fields of the inner response, or the envelope's error."""
        frame = encode_frame(api, version, values, client_id="forwarded")
        envelope = {
            "RequestData": frame,
            "RequestPrincipal": principal_data(self._principal),
            "ClientHostAddress": CLIENT_ADDRESS,
        }
        answer = super().ask("Envelope", 0, envelope)
        if answer["ErrorCode"] or answer["ResponseData"] is None:
            return {"envelope": answer}
        response = message(f"{api}Response")
        return decode(response, version, answer["ResponseData"], 5 if version in response.flexible else 4)


def principal_data(principal: str, *, is_token: bool = False) -> bytes:
    """Return a principal as Kafka's DefaultKafkaPrincipalBuilder writes it."""
    texts = (text.encode() for text in principal.split(":", 1))
    body = b"".join(bytes([len(text) + 1]) + text for text in texts)
    return b"\0\0" + body + (b"\1" if is_token else b"\0") + b"\0"


def described(connection: Connection) -> dict[str, Any]:
    """Return the quorum's only partition, as DescribeQuorum has it."""
    topics = [{"TopicName": METADATA, "Partitions": [{"PartitionIndex": 0}]}]
    partition: dict[str, Any] = connection.ask("DescribeQuorum", 2, {"Topics": topics})["Topics"][0][
        "Partitions"
    ][0]
    return partition


@contextmanager
def both(
    version: str, settings: Mapping[str, str] | None = None, *, is_static: bool = False
) -> Iterator[tuple[ControllerSide, ControllerSide]]:
    """(Apache Kafka, Barnabas): two controllers that lead. Raises KafkaError, RuntimeError, StartError.

    With `is_static` the voter is in the settings, and kraft.version is 0.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="controllers-")))
        sides = []
        for name, kind in (("Kafka", Node), ("Barnabas", OurController)):
            node = kind(version, directory / name, NODE_ID, "controller", has_admin=True)
            address = f"{HOST}:{node.port}"
            if is_static:
                quorum, arguments = {"controller.quorum.voters": f"{NODE_ID}@{address}"}, []
            else:
                quorum = {"controller.quorum.bootstrap.servers": address}
                arguments = ["--initial-controllers", f"{NODE_ID}@{address}:{encode_uuid(DIRECTORY_ID)}"]
            node.configure({**SETTINGS, **(settings or {}), **quorum})
            node.format(*arguments)
            stack.callback(node.process.stop)
            node.start()
            side = ControllerSide(name, node.port, node.admin_port, node.metadata_dir)
            _wait_until_active(side, node)
            sides.append(side)
        theirs, ours = sides
        yield theirs, ours


def _wait_until_active(side: ControllerSide, node: Node) -> None:
    """Wait until a controller leads and has registered. Raises StartError."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with side.connect() as connection:
                answer = connection.ask("DescribeCluster", 2, {"EndpointType": 2})
            if answer["Brokers"]:
                return
        except (OSError, WireError):
            pass
        time.sleep(0.2)
    raise StartError(f"{side.name} does not lead:\n{node.process.output.read_text()[-2000:]}")
