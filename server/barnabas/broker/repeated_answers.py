"""Answers of Metadata that are encoded once, and sent to everybody who asks the same.

The rule: an answer is kept for the image of the cluster, and the replicas here, that it was made of; with the first
change of either all are forgotten. What depends on who asks, or changes something, is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.cluster.image import ClusterImage
    from barnabas.cluster.store import MetadataStore
    from barnabas.replicas.manager import Replicas
    from barnabas.requests.context import ConnectionInfo
    from barnabas.wire.headers import RequestHeader
    from barnabas.wire.regions import Chunk

AFTER_CORRELATION_ID = 8
"""Where the rest of an encoded response begins, after its size."""
QUESTION_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 2 << 20
"""What one answer may have; larger ones are made each time."""
BYTES_MAX = 8 << 20
"""What all of them may have, with what was asked; then all are forgotten."""


class Question(NamedTuple):
    """What an answer depends on beside the cluster: the request, and where it came from."""

    version: int
    body: bytes
    listener: str
    local_address: tuple[str, int]


class Answer(NamedTuple):
    """A response from its correlation id on, without that, and how often it has each error code."""

    body: bytes
    codes: Mapping[int, int]


class RepeatedAnswers:
    """The answers that are good as long as nothing changes."""

    def __init__(self, metadata: MetadataStore, replicas: Replicas) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._answers: dict[Question, Answer] = {}
        self.size_bytes = 0
        """Bytes of what is kept."""
        self._image: ClusterImage | None = None
        self._change_count = 0

    def find(self, connection: ConnectionInfo, header: RequestHeader, frame: memoryview) -> Answer | None:
        """Return what was answered to the same question, if nothing has changed since."""
        image, change_count = self.state
        if self._image is not image or self._change_count != change_count:
            self._answers.clear()
            self.size_bytes = 0
            self._image, self._change_count = image, change_count
            return None
        if not self._answers or len(frame) > QUESTION_BYTES_MAX:
            return None
        return self._answers.get(_question(connection, header, frame))

    @property
    def state(self) -> tuple[ClusterImage, int]:
        """What answers are made of now."""
        return self._metadata.image, self._replicas.change_count

    def keep(
        self,
        connection: ConnectionInfo,
        header: RequestHeader,
        frame: memoryview,
        chunks: Sequence[Chunk],
        codes: Mapping[int, int],
        made_of: tuple[ClusterImage, int],
    ) -> None:
        """Keep an encoded answer without errors, unless something has changed since `made_of` was the state."""
        image, change_count = made_of
        size = sum(map(len, chunks))
        if (
            image is not self._image
            or change_count != self._change_count
            or len(frame) > QUESTION_BYTES_MAX
            or size > ANSWER_BYTES_MAX
            or any(codes)
        ):
            return
        if self.size_bytes > BYTES_MAX:
            self._answers.clear()
            self.size_bytes = 0
        body = b"".join(chunks)[AFTER_CORRELATION_ID:]  # type: ignore[arg-type]
        self._answers[_question(connection, header, frame)] = Answer(body, codes)
        self.size_bytes += len(frame) + size


def _question(connection: ConnectionInfo, header: RequestHeader, frame: memoryview) -> Question:
    body = bytes(frame[header.body_position :])
    return Question(header.api_version, body, connection.listener, connection.local_address)
