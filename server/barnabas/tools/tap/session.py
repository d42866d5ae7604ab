"""The conversation on a connection: requests and responses, matched, decoded and reported to observers. Pure.

The rule: only responses with rewritten addresses are delayed. Unintelligible bytes are noted and forwarded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from barnabas.errors import PeerError
from barnabas.tools.inspection import sasl
from barnabas.tools.inspection.frames import (
    Request,
    Response,
    looks_like_request,
    read_header,
    read_request,
    read_response,
)
from barnabas.tools.tap.cutting import (
    START_BYTES,
    UNCOUNTED_BYTES,
    Budget,
    Cutter,
    Data,
    Fate,
    NotFramesError,
)
from barnabas.tools.tap.exchange import HEX_BYTES_MAX, Connection, Exchange, Observer, TopicNames
from barnabas.tools.tap.skimming import VERSION_MAX, FetchSkimmer
from barnabas.wire.errors import EncodeError
from barnabas.wire.framing import MESSAGE_BYTES_MAX, check_frame_size

PRODUCE, FETCH, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, SHARE_FETCH = 0, 1, 17, 18, 36, 78
_WITH_RECORDS = frozenset((FETCH, SHARE_FETCH))
REQUEST_BYTES_MAX = 256 << 20
"""More than the size of any Kafka request: a larger size means another protocol."""
RESPONSE_BYTES_MAX = 2**31 - 1
PENDING_MAX = 100_000
"""Pending requests of a connection; older ones are abandoned."""

Rewrite = Callable[[Exchange, Data], "bytes | None"]
"""Gets an exchange with its decoded answer, and the answer's frame; returns a new frame with its size field, or None."""
RewriteEnd = Callable[[Exchange, int], "bytes | None"]
"""Gets an exchange with its decoded Fetch response, and the size of its final tagged fields; returns new ones, or None."""


class Keeper(Protocol):
    """Keeps frames."""

    def __call__(self, exchange: Exchange, frame: Data, size: int, *, from_client: bool, at: float) -> None:
        """Process a frame without its size field; of a too large frame, only the beginning of its `size` bytes."""


class Session:
    """The conversation on one connection; `from_client` and `from_broker` process bytes and return those to forward."""

    def __init__(
        self,
        connection: Connection,
        observer: Observer,
        *,
        budget: Budget,
        names: TopicNames,
        holds: Callable[[int, int], bool] = lambda _key, _version: False,
        rewrite: Rewrite | None = None,
        rewrite_end: RewriteEnd | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        """`holds` decides by API and version whether responses are held back for `rewrite`; then `sent` must be called.

        With `rewrite_end` the records in large Fetch responses are neither decoded nor held back.
        """
        self.connection = connection
        self.observer = observer
        self.names = names
        self._holds = holds
        self._rewrite = rewrite
        self._rewrite_end = rewrite_end if keeper is None else None
        self._keeper = keeper
        self._now = connection.opened_at
        self._pending: deque[Exchange] = deque()
        self._count = 0
        self._mechanism: str | None = None
        """SASL mechanism of a login under way."""
        self._expects_tokens = False
        """True while SASL tokens come without request headers: after SaslHandshake v0."""
        self._requests = Cutter(_Requests(self), budget)
        self._responses = Cutter(_Responses(self), budget, defers=rewrite is not None)

    # --- bytes ------------------------------------------------------------------------------------------------

    def from_client(self, data: bytes, at: float) -> None:
        """Look at bytes of the client, which are forwarded as they are."""
        self._now = at
        self._requests.feed(data)
        if self._requests.is_opaque:
            self._responses.is_opaque = True

    def from_broker(self, data: bytes, at: float) -> list[Data]:
        """Take bytes of the broker; returns the bytes to forward now."""
        self._now = at
        return self._responses.feed(data)

    @property
    def unread(self) -> int:
        """Number of the broker's next bytes that may be forwarded without `from_broker`."""
        return self._responses.unread

    def passed(self, count: int, at: float) -> None:
        """Note that `count` of the `unread` bytes have been forwarded."""
        self._now = at
        self._responses.passed(count)

    def sent(self) -> None:
        """Note that the result of `from_broker` has been sent."""
        self._responses.sent()

    @property
    def is_answered(self) -> bool:
        """True if no response is pending."""
        return not self._pending

    def rest(self) -> bytes:
        """Return held bytes of the broker, at the end of its stream."""
        rest = self._responses.rest()
        self._responses.sent()
        return rest

    # --- missing bytes, as in captures ------------------------------------------------------------------------------

    def skip(self, count: int, *, from_client: bool) -> bool:
        """Skip bytes that are missing within a frame; False if the next frame cannot be located so."""
        return (self._requests if from_client else self._responses).skip(count)

    @property
    def has_asked(self) -> bool:
        """True while bytes of the broker can belong to a response, or are not inspected at all."""
        return bool(self._pending) or self._responses.is_inside or self._responses.is_opaque

    def may_begin(self, data: bytes, *, from_client: bool) -> bool:
        """Return whether a frame may begin with these bytes: the header of a request, or a response to a pending one."""
        if len(data) < START_BYTES:
            return False
        size = int.from_bytes(data[:4], "big", signed=True)
        if from_client:
            return 8 <= size <= REQUEST_BYTES_MAX and looks_like_request(data[4:], size)
        correlation_id = int.from_bytes(data[4:8], "big", signed=True)
        return size >= 4 and any(
            exchange.request.correlation_id == correlation_id for exchange in self._pending
        )

    def begin_again(self, *, from_client: bool) -> None:
        """Discard the incomplete frame of one direction: the next bytes begin a frame."""
        cutter = self._requests if from_client else self._responses
        cutter.rest()
        cutter.is_opaque = False

    def close(self, at: float, reason: str) -> None:
        """End the conversation."""
        self._now = at
        for side, cutter in (("client", self._requests), ("broker", self._responses)):
            if cutter.is_inside and not cutter.is_opaque:
                self.note(f"the {side}'s last frame is cut short")
            cutter.rest()
            cutter.sent()
        while self._pending:
            self._give_up(self._pending.popleft(), reason)
        self.observer.closed(self.connection, at, reason)

    def note(self, text: str, data: Data = b"") -> None:
        """Report an anomaly to the observer."""
        self.observer.noted(self.connection, self._now, text, bytes(data[:HEX_BYTES_MAX]))

    # --- requests ---------------------------------------------------------------------------------------------

    def begin_request(self, size: int, start: Data) -> Fate:
        """Decide about a request's frame."""
        try:
            check_frame_size(size.to_bytes(4, "big", signed=True), 0, REQUEST_BYTES_MAX)
        except PeerError as error:
            self.note(f"these are no requests of Kafka's protocol, they are forwarded: {error}", start)
            raise NotFramesError from None
        key = int.from_bytes(start[:2], "big", signed=True)
        if size > MESSAGE_BYTES_MAX and key != PRODUCE:
            return Fate.PASS
        return Fate.KEEP

    def end_request(self, frame: Data, size: int, *, is_whole: bool) -> None:
        """Receive a request's frame, or the beginning of a large one."""
        self._count += 1
        is_token = (self._expects_tokens or (self._count == 1 and frame[:1] == sasl.GSSAPI_START)) and (
            not looks_like_request(frame, size)
        )
        if is_token:
            exchange = self._token(frame, size)
        else:
            self._expects_tokens = False
            request = read_request(frame) if is_whole else read_header(frame)
            request.size = size
            if not is_whole and not request.problem:
                request.problem = _part(frame, size)
            exchange = Exchange(self.connection, self._count, request, self._now, self.names)
            if request.message is None:
                exchange.request_bytes = bytes(frame[:HEX_BYTES_MAX])
            self._learn_from_request(exchange)
        if exchange.request.is_answered and (is_whole or not self._is_unacknowledged(exchange, frame)):
            self._pending.append(exchange)
            if len(self._pending) > PENDING_MAX:
                self._give_up(self._pending.popleft(), "no answer among the ones after it")
        else:
            exchange.unanswered = "acks=0"
            self.observer.exchanged(exchange)
        if self._keeper is not None:
            self._keeper(exchange, frame, size, from_client=True, at=self._now)

    def _is_unacknowledged(self, exchange: Exchange, frame: Data) -> bool:
        """Return whether a large Produce request has acks=0, by its beginning."""
        request = exchange.request
        if request.api_key != PRODUCE:
            return False
        at = request.body_position
        if request.version >= 9:
            length, at = frame[at] - 1, at + 1
        elif request.version >= 3:
            length, at = int.from_bytes(frame[at : at + 2], "big", signed=True), at + 2
        else:
            length = 0
        at += max(length, 0)
        return bytes(frame[at : at + 2]) == b"\0\0"

    def _token(self, frame: Data, size: int) -> Exchange:
        request = Request(size, api="SASL token", client_id=self.connection.client_id)
        exchange = Exchange(self.connection, self._count, request, self._now, self.names, is_bare_token=True)
        exchange.token = sasl.describe(self._mechanism, bytes(frame), from_client=True)
        self._note_user(exchange.token)
        return exchange

    def _note_user(self, token: dict[str, Any]) -> None:
        user = sasl.user_of(token)
        if user is not None:
            self.connection.user = user

    def _learn_from_request(self, exchange: Exchange) -> None:
        request, connection = exchange.request, self.connection
        if connection.client_id is None:
            connection.client_id = request.client_id
        message = request.message
        if message is None:
            return
        if request.api_key == API_VERSIONS and message.client_software_name:
            connection.software = f"{message.client_software_name} {message.client_software_version}".strip()
        elif request.api_key == SASL_HANDSHAKE:
            self._mechanism = message.mechanism
        elif request.api_key == SASL_AUTHENTICATE:
            exchange.token = sasl.describe(self._mechanism, bytes(message.auth_bytes), from_client=True)
            self._note_user(exchange.token)

    # --- answers ----------------------------------------------------------------------------------------------

    def begin_response(self, size: int, start: Data) -> Fate:
        """Decide about an answer's frame."""
        if size < 0 or not self._pending:
            text = "bytes of the broker that are no answers, they are forwarded"
            self.note(f"{text}: {'the size is negative' if size < 0 else 'nothing is asked'}", start)
            raise NotFramesError
        exchange = self._find(start)
        if exchange is None:
            return Fate.PASS
        request = exchange.request
        is_large_fetch = request.api_key == FETCH and size > UNCOUNTED_BYTES
        if is_large_fetch and self._rewrite_end is not None and 0 <= request.version <= VERSION_MAX:
            return Fate.SKIM
        if self._holds(request.api_key, request.version):
            return Fate.HOLD
        if size > MESSAGE_BYTES_MAX and request.api_key not in _WITH_RECORDS:
            return Fate.PASS
        return Fate.KEEP

    def _find(self, start: Data) -> Exchange | None:
        """Return the request of a response, by its correlation id; earlier requests will get no response."""
        oldest = self._pending[0]
        if oldest.is_bare_token:
            return oldest
        correlation_id = int.from_bytes(start[:4], "big", signed=True)
        if oldest.request.correlation_id == correlation_id:
            return oldest
        if not any(exchange.request.correlation_id == correlation_id for exchange in self._pending):
            return None
        while self._pending[0].request.correlation_id != correlation_id:
            self._give_up(self._pending.popleft(), "the broker answered a later request")
        return self._pending[0]

    def skimmer(self, size: int, start: Data) -> FetchSkimmer:
        """Return the skimmer for a large Fetch response."""
        exchange = self._find(start)
        assert exchange is not None
        return FetchSkimmer(exchange.request.version, size)

    def end_skimmed(self, skimmer: FetchSkimmer, size: int, end_size: int) -> Data | None:
        """Receive a large Fetch response without its records; returns the bytes to forward for its end."""
        exchange = self._answered(skimmer.kept)
        if exchange is None:
            return None
        request = exchange.request
        response = read_response(bytes(skimmer.kept), request.api_key, request.version)
        response.size = size
        if skimmer.is_lost:
            response.message, response.problem = None, _part(skimmer.kept, size)
        exchange.response = response
        changed = None
        if response.message is not None:
            skimmer.fill_in(response.message)
            self._learn_from_response(exchange, response.message)
            if end_size and self._rewrite_end is not None:
                try:
                    changed = self._rewrite_end(exchange, end_size)
                except EncodeError as error:
                    self.note(f"addresses in an answer to {request.api} cannot be changed: {error}")
        else:
            exchange.response_bytes = bytes(skimmer.kept[:HEX_BYTES_MAX])
            if self._holds(request.api_key, request.version):
                self.note(f"addresses in an answer to {request.api} are not changed: {response.problem}")
        self.observer.exchanged(exchange)
        return changed

    def _answered(self, frame: Data) -> Exchange | None:
        """Return the request of a complete response, and mark it as answered."""
        exchange = self._find(frame) if self._pending else None
        if exchange is None:
            self.note("an answer with a correlation id that no request has", frame)
            return None
        self._pending.popleft()
        exchange.answered_at = self._now
        return exchange

    def end_response(self, frame: Data, size: int, *, is_whole: bool) -> Data | None:
        """Receive a response's frame, or the beginning of a large one; returns the bytes to forward for a held one."""
        exchange = self._answered(frame)
        if exchange is None:
            return None
        request = exchange.request
        if exchange.is_bare_token:
            self._take_answer_token(exchange, bytes(frame))
            exchange.response = Response(size)
        elif is_whole:
            exchange.response = read_response(frame, request.api_key, request.version)
        else:
            exchange.response = Response(size, request.correlation_id, problem=_part(frame, size))
        response = exchange.response
        if response.problem:
            exchange.response_bytes = bytes(frame[:HEX_BYTES_MAX])
        changed = None
        if response.message is not None:
            self._learn_from_response(exchange, response.message)
        if self._keeper is not None:
            self._keeper(exchange, frame, size, from_client=False, at=self._now)
        if self._rewrite is not None and self._holds(request.api_key, request.version):
            if response.message is not None:
                try:
                    changed = self._rewrite(exchange, frame)
                except EncodeError as error:
                    self.note(f"addresses in an answer to {request.api} cannot be changed: {error}")
            else:
                self.note(f"addresses in an answer to {request.api} are not changed: {response.problem}")
        self.observer.exchanged(exchange)
        return changed

    def _take_answer_token(self, exchange: Exchange, frame: bytes) -> None:
        exchange.answer_token = sasl.describe(self._mechanism, frame, from_client=False)
        if "error" not in exchange.answer_token:
            self.connection.mechanism = self._mechanism

    def _learn_from_response(self, exchange: Exchange, message: Any) -> None:
        key = exchange.request.api_key
        if key == SASL_HANDSHAKE:
            self._expects_tokens = exchange.request.version == 0 and not message.error_code
        elif key == SASL_AUTHENTICATE:
            if message.auth_bytes:
                exchange.answer_token = sasl.describe(
                    self._mechanism, bytes(message.auth_bytes), from_client=False
                )
            if not message.error_code:
                self.connection.mechanism = self._mechanism
        else:
            self.names.learn(message)

    def _give_up(self, exchange: Exchange, reason: str) -> None:
        exchange.unanswered = reason
        self.observer.exchanged(exchange)


def _part(frame: Data, size: int) -> str:
    return f"not decoded: only {len(frame)} of {size} bytes are kept"


class _Requests:
    """The client's direction, for its cutter."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, size: int, start: Data) -> Fate:
        return self._session.begin_request(size, start)

    def end(self, frame: Data, size: int) -> None:
        self._session.end_request(frame, size, is_whole=len(frame) == size)

    def skimmer(self, size: int, start: Data) -> FetchSkimmer:
        raise NotImplementedError  # no request is taken so

    def end_skimmed(self, skimmer: FetchSkimmer, size: int, end_size: int) -> Data | None:
        raise NotImplementedError


class _Responses:
    """The broker's direction, for its cutter."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self, size: int, start: Data) -> Fate:
        return self._session.begin_response(size, start)

    def end(self, frame: Data, size: int) -> Data | None:
        return self._session.end_response(frame, size, is_whole=len(frame) == size)

    def skimmer(self, size: int, start: Data) -> FetchSkimmer:
        return self._session.skimmer(size, start)

    def end_skimmed(self, skimmer: FetchSkimmer, size: int, end_size: int) -> Data | None:
        return self._session.end_skimmed(skimmer, size, end_size)
