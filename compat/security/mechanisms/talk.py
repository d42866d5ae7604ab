"""One connection to a broker, and everything that its client sees: responses, timeouts, and the end.

The rule: what is sent may be anything. What comes back is noted by label: an answer's fields, when it came (at once, or
only after the time that a failed login waits), or that the connection was closed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

from compat.kit.wire import Values, WireError, decode, encode, message
from compat.security.mechanisms.sides import FAILURE_DELAY_MS, LIFETIME_MS, Secured

TIMEOUT_S = 8.0
SILENCE_S = 1.5
"""Time after which a connection that is not closed counts as left open."""
LATE_S = FAILURE_DELAY_MS / 1000 * 0.7
CLOSED = "closed"
SILENT = "no answer, open"
API_VERSIONS = 18
Notes = dict[str, Any]
Shown = Callable[[bytes], Any]


class Talk:
    """A connection. `notes` are shared by the talks of one scenario."""

    def __init__(
        self,
        side: Secured,
        listener: str,
        notes: Notes,
        *,
        context: ssl.SSLContext | None = None,
        who: str = "",
    ) -> None:
        """Connect. With a `context` the handshake of TLS is made, and what came of it is noted."""
        self.side = side
        self.notes = notes
        self._who = f"{who}: " if who else ""
        self._correlation_id = 0
        self._received = b""
        self._socket: socket.socket = socket.create_connection(("127.0.0.1", side.ports[listener]), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._encrypt(context)

    def _encrypt(self, context: ssl.SSLContext) -> None:
        try:
            encrypted = context.wrap_socket(self._socket, server_hostname="localhost")
        except ssl.SSLError:  # how the alert is called is up to the library of either
            self.note("TLS", "refused")
        except OSError:
            self.note("TLS", CLOSED)
        else:
            self.note("TLS", encrypted.version())
            self._socket = encrypted

    def note(self, label: str, what: Any) -> None:
        """Keep something for the comparison."""
        label = f"{self._who}{label}"
        count = sum(key.split(" #")[0] == label for key in self.notes)
        self.notes[f"{label} #{count + 1}" if count else label] = what

    # --- sending ------------------------------------------------------------------------------------------------

    def ask(
        self, label: str, api: str, version: int, values: Values, *, shown: Shown | None = None
    ) -> Values | None:
        """Ask, and note the answer; returns its fields, None if there is none. `shown` is of its SASL token."""
        return self.answer(label, api, version, self.send(api, version, values), shown=shown)

    def send(self, api: str, version: int, values: Values, *, encoded_as: int | None = None) -> float:
        """Send a request; returns the time. `encoded_as` is the version of its form, if that is another."""
        return self.send_bytes(framed(self.request(api, version, values, encoded_as=encoded_as)))

    def request(self, api: str, version: int, values: Values, *, encoded_as: int | None = None) -> bytes:
        """Return the bytes of a request without their size."""
        definition = message(f"{api}Request")
        assert definition.api_key is not None
        form = version if encoded_as is None else encoded_as
        self._correlation_id += 1
        head = struct.pack(">hhih", definition.api_key, version, self._correlation_id, 3) + b"kit"
        return head + (b"\0" if form in definition.flexible else b"") + encode(definition, form, values)

    def send_bytes(self, data: bytes) -> float:
        """Send bytes as they are; returns the time."""
        with contextlib.suppress(OSError):  # the broker has gone: reading will tell
            self._socket.sendall(data)
        return time.monotonic()

    def send_token(self, label: str, token: bytes, *, shown: Shown | None = None) -> bytes | None:
        """Send a bare token, note what comes; returns the answer's bytes, None if there is none."""
        begun = self.send_bytes(framed(token))
        answer = self._frame(TIMEOUT_S)
        what = (shown(answer) if shown else answer) if isinstance(answer, bytes) else answer
        self.note(label, {"answer": what, **self._when(begun)})
        return answer if isinstance(answer, bytes) else None

    def finish_sending(self) -> None:
        """Say that nothing else will be sent; the connection can still be read."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    # --- receiving ----------------------------------------------------------------------------------------------

    def answer(
        self, label: str, api: str, version: int, begun: float, *, shown: Shown | None = None
    ) -> Values | None:
        """Note the answer to what was sent at `begun`; returns its fields, None if there is none."""
        answer = self._frame(TIMEOUT_S)
        if not isinstance(answer, bytes):
            self.note(label, {"answer": answer, **self._when(begun)})
            return None
        response = message(f"{api}Response")
        start = 5 if version in response.flexible and response.api_key != API_VERSIONS else 4
        try:
            values = decode(response, version, answer, start)
        except WireError:
            self.note(label, {"answer": answer[4:], **self._when(begun)})
            return None
        if response.api_key == API_VERSIONS:  # what is served is compared elsewhere
            values = {"ErrorCode": values["ErrorCode"]}
        # Only what a login says in words is for its client's user.
        hidden = ("ThrottleTimeMs",) if api.startswith("Sasl") else ("ThrottleTimeMs", "ErrorMessage")
        noted = {name: value for name, value in values.items() if name not in hidden}
        if noted.get("SessionLifetimeMs", 0) > LIFETIME_MS:  # what is left of a token's life
            noted["SessionLifetimeMs"] = f"{round(noted['SessionLifetimeMs'] / 600_000)}0 minutes"
        if "Mechanisms" in noted:  # Kafka has them in the order of a hash
            noted["Mechanisms"] = sorted(noted["Mechanisms"])
        if shown and values.get("AuthBytes"):
            noted["AuthBytes"] = shown(values["AuthBytes"])
        self.note(label, {**noted, **self._when(begun)})
        return values

    def works(self, label: str = "a request") -> bool:
        """Send a request that needs a login; records and returns whether it was answered."""
        begun = self.send("FindCoordinator", 0, {"Key": "g"})
        answer = self._frame(TIMEOUT_S)
        self.note(label, {"answer": "there" if isinstance(answer, bytes) else answer, **self._when(begun)})
        return isinstance(answer, bytes)

    def ends(self, label: str = "then") -> None:
        """Record whether the broker closes the connection, and whether immediately."""
        begun = time.monotonic()
        answer = self._frame(SILENCE_S)
        what = answer if isinstance(answer, str) else {"more": answer[:6]}  # id and error code
        self.note(label, {"answer": what, **(self._when(begun) if answer == CLOSED else {})})

    def principal(self) -> None:
        """Note the principal of this client, as the owner of a token that it asks for."""
        answer = self.ask_quietly("CreateDelegationToken", 3, {"Renewers": [], "MaxLifetimeMs": 60_000})
        fields = ("ErrorCode", "PrincipalType", "PrincipalName")
        self.note("principal", {name: answer[name] for name in fields} if answer else CLOSED)

    def ask_quietly(self, api: str, version: int, values: Values) -> Values | None:
        """Send a request without recording the response."""
        begun = self.send(api, version, values)
        kept = dict(self.notes)
        answer = self.answer("", api, version, begun)
        self.notes.clear()
        self.notes.update(kept)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    @staticmethod
    def _when(begun: float) -> Notes:
        return {"when": "late" if time.monotonic() - begun > LATE_S else "at once"}

    def _frame(self, seconds: float) -> bytes | str:
        """Return the next frame, or a text if there is none."""
        give_up = time.monotonic() + seconds
        while True:
            received = self._received
            if len(received) >= 4:
                end = 4 + struct.unpack(">I", received[:4])[0]
                if len(received) >= end:
                    self._received = received[end:]
                    return received[4:end]
            try:
                self._socket.settimeout(max(give_up - time.monotonic(), 0.001))
                part = self._socket.recv(65536)
            except TimeoutError:
                return SILENT
            except ssl.SSLError:
                return "refused by TLS"
            except OSError:
                return CLOSED
            if not part:
                return CLOSED
            self._received += part


def framed(data: bytes) -> bytes:
    """Return bytes with their size before them."""
    return struct.pack(">i", len(data)) + data
