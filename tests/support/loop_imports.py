"""Send a request of every API, and print the modules that the event loop's thread has imported meanwhile, as JSON by API.

Run as a separate process, with as few earlier imports as possible: `python -m tests.support.loop_imports`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import ModuleType

import trio

from barnabas.serving.release import KAFKA_4
from compat.hostile.messages import filled, frame
from tests.support.brokers import running

ANSWER_TIMEOUT_S = 20
HANDFUL_S = 0.2
MAY_WAIT = frozenset({"JoinGroup", "SyncGroup", "ShareFetch", "Produce"})
"""APIs with a response that waits for other clients, or never comes (acks=0)."""
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
    "connection_failed_authentication_delay_ms": "0",
    "listener_name_users_plain_sasl_jaas_config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    ),
    "auto_create_topics_enable": "true",
    "telemetry_enable": "true",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
}


class Finder:
    """An import finder that finds no module, and records the imports of the thread that created it."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if threading.get_ident() == self._thread:
            self.found.append(name)


async def ask(address: tuple[str, int], data: bytes, *, waits: bool) -> None:
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        with trio.move_on_after(HANDFUL_S if waits else ANSWER_TIMEOUT_S):
            await stream.send_all(data)
            await stream.send_eof()
            try:
                while await stream.receive_some():
                    pass
            except trio.BrokenResourceError:
                return


async def imported(directory: str) -> dict[str, list[str]]:
    by_api: dict[str, list[str]] = {}
    async with running([directory], **SETTINGS) as client:
        address, users_address = (listener.addresses[0] for listener in client.broker.listeners)
        for each in (address, users_address):
            await ask(each, frame("ApiVersions", 0, {}), waits=False)
        begins_login = frame("SaslHandshake", 1, {"Mechanism": "PLAIN"})
        await ask(users_address, begins_login, waits=False)
        finder = Finder()
        sys.meta_path.insert(0, finder)
        for api in KAFKA_4.apis.values():
            for version in sorted({api.min_version, api.max_version}):
                if not api.member_only:
                    data = frame(api.name, version, filled(api.name, version))
                    await ask(users_address, begins_login + data, waits=False)  # refused: a token is due
                    await ask(address, data, waits=api.name in MAY_WAIT)
            if finder.found:
                by_api[api.name] = finder.found
                finder.found = []
    return by_api


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="loop-imports-") as directory:
        print(json.dumps(trio.run(imported, directory)))
