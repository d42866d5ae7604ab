"""The pure part of an active controller for tests: handles requests, and replays the committed records as from the log."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from barnabas.cluster.kraft.controller import access, features, quotas, scram, settings, tokens
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, at_once
from barnabas.cluster.kraft.controller.versions import version_of
from barnabas.cluster.kraft.image import Position
from barnabas.cluster.kraft.replay import Replay
from barnabas.config.loading import BrokerConfig
from barnabas.wire.metadata_records import (
    decode_record,
    encode_record,
    record_codec,
    record_keys,
    record_name,
)
from barnabas.wire.registry import info, request_codec, response_codec

RECORDS = {record_name(key): record_codec(key).message for key in record_keys()}
NODE_ID = 100
NOW_MS = 1_700_000_000_000
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


class SeededEntropy:
    """Random bytes that are the same in each run."""

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)

    def token_bytes(self, size: int, /) -> bytes:
        return self._random.randbytes(size)

    def below(self, limit: int, /) -> int:
        return self._random.randrange(limit)


class ActiveController:
    """A leader with an image. `records` are those of the last request, as read back from the log."""

    def __init__(self, level: int = 30, config: Mapping[str, str] | None = None, *records: Any) -> None:
        texts = {"node.id": str(NODE_ID), **(config or {})}
        self.state = ControllerState(BrokerConfig(texts), SeededEntropy(), NODE_ID, now_ms=NOW_MS)
        self.handlers = {
            key: handler
            for part in (access, features, quotas, scram, settings, tokens)
            for key, handler in part.HANDLERS.items()
        }
        self.records: list[Any] = []
        self._replay = Replay()
        self.commit(RECORDS["FeatureLevel"]("metadata.version", level), *records)

    @property
    def image(self) -> Any:
        """The newest image."""
        return self.state.image

    def commit(self, *records: Any) -> None:
        """Write records in the versions of the level, and read them again."""
        level = self.state.image.metadata_version or 33
        self.records = []
        for record in records:
            message, _ = decode_record(encode_record(record, version_of(record, level)))
            assert message == record
            self._replay.apply(message)
            self.records.append(message)
        self.state.next_offset += len(records)
        self.state.image = self._replay.publish(Position(self.state.next_offset - 1, 1, NOW_MS))

    def ask(self, key: int, request: Any, version: int | None = None, **caller: Any) -> Any:
        """Return the response to a request in a version, the newest unless one is given. Raises RequestError."""
        if version is None:
            version = info(key).max_stable_version
        requests, responses = request_codec(key), response_codec(key)
        request = requests.decode_whole(requests.encode_bytes(request, version), version)
        self.commit()
        outcome = at_once(self.handlers[key](self.state, request, Caller(version, **caller)))
        self.commit(*outcome.records)
        return responses.decode_whole(responses.encode_bytes(outcome.response, version), version)

    def tick(self, part: Any) -> list[Any]:
        """Commit and return the records that a part has due by now."""
        self.commit(*part.tick(self.state))
        return self.records

    def pass_time(self, ms: int) -> None:
        """Advance both clocks."""
        self.state.now_ms += ms
        self.state.monotonic_ms += ms
