"""A client of services with JSON over HTTP, such as schema registries and Kafka Connect.

The rule: responses are bounded in bytes and in time; a response that is not the service's own is an error with the address.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from http import HTTPStatus
from typing import Any, ClassVar
from urllib.parse import unquote

import h11
import trio

from barnabas.network.dialing import dial, reason_of
from barnabas.registry.addresses import origin_of, split, without_secret
from barnabas.registry.errors import RegistryError

TIMEOUT_S = 10.0
_READ_BYTES = 64 * 1024


class RestClient:
    """A client of one service. Each request has a separate connection.

    All calls raise RegistryError, with the service's status and code, or 0 and 0 if no service responded.
    """

    service: ClassVar[str] = "a registry"
    content_type: ClassVar[str] = "application/json"
    answer_bytes_max: ClassVar[int] = 64 << 20

    def __init__(
        self,
        url: str,
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Create a client without a connection yet. Raises ValueError for an invalid URL.

        `url` is `http://HOST:PORT` or `https://HOST:PORT`, perhaps with USER:PASSWORD@ and a path. `user` and `password`
        are sent as HTTP Basic in place of those of the URL, `token` as a bearer token in place of a user. `tls` has the
        certificates to trust, and the client's own; the system's by default. A request ends after `timeout_s` seconds.
        """
        where = split(url)
        self.url = without_secret(url)
        _, self._host, self._port = origin_of(url)
        self._path = where.path.rstrip("/")
        self._tls = (tls or ssl.create_default_context()) if where.scheme == "https" else None
        self._timeout_s = timeout_s
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._headers = [
            ("Host", f"{name}:{self._port}"),
            ("Accept", ", ".join(dict.fromkeys((self.content_type, "application/json")))),
            ("User-Agent", "barnabas"),
            ("Connection", "close"),
        ]
        if not user:  # name and password have the same source
            user, password = unquote(where.username or ""), unquote(where.password or "")
        if token:
            self._headers.append(("Authorization", f"Bearer {token}"))
        elif user:
            login = b64encode(f"{user}:{password}".encode()).decode()
            self._headers.append(("Authorization", f"Basic {login}"))
        self._has_login = bool(token or user)

    async def ask_unread(self, path: str, method: str = "GET", body: Any = None) -> bytes:
        """Return the body of a response unparsed, as a long list is parsed elsewhere. Raises RegistryError."""
        content = b"" if body is None else json.dumps(body).encode()
        status, data = await self._answer(method, path, content)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._refusal(status, path, _json_of(data))
        return data

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request, `body` as JSON, and return the JSON value of its response. Raises RegistryError."""
        status, data = await self._answer(method, path, b"" if body is None else json.dumps(body).encode())
        value = _json_of(data)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self._refusal(status, path, value)
        if value is None and data.strip() not in (b"", b"null"):
            raise RegistryError(0, 0, f"{self.url} is not {self.service}: its response to {path} is not JSON")
        return value

    async def _answer(self, method: str, path: str, content: bytes) -> tuple[int, bytes]:
        """Return status and content of the answer to a request. Raises RegistryError."""
        try:
            with trio.fail_after(self._timeout_s):
                return await self._exchange(method, self._path + path, content)
        except trio.TooSlowError:
            raise RegistryError(0, 0, f"{self.url} did not respond within {self._timeout_s:g} s") from None
        except h11.RemoteProtocolError as error:
            raise RegistryError(0, 0, f"{self.url} cannot be reached: it does not speak HTTP") from error
        except (OSError, trio.BrokenResourceError) as error:
            reason = _reason_of(error.__cause__ or error)
            raise RegistryError(0, 0, f"{self.url} cannot be reached: {reason}") from error

    def _refusal(self, status: int, path: str, value: Any) -> RegistryError:
        """Return the error of a refusal; a response that is not the service's has no code and no text of it."""
        is_told = isinstance(value, dict) and isinstance(value.get("error_code"), int)
        text = str(value.get("message", "")) if is_told else ""
        code = value["error_code"] if is_told else status
        if status == HTTPStatus.UNAUTHORIZED:
            complaint = "refused the login" if self._has_login else "requires a login"
            text = f"{self.url} {complaint}" + (f": {text}" if text else "")
        elif not is_told:
            what = f"{self.url} responded to {path} with status {status}"
            is_other = status < HTTPStatus.BAD_REQUEST or status == HTTPStatus.NOT_FOUND
            text = f"{what}: is it the address of {self.service}?" if is_other else what
        return RegistryError(status, code, text)

    async def _exchange(self, method: str, target: str, content: bytes) -> tuple[int, bytes]:
        stream: trio.abc.Stream = await dial(self._host, self._port)
        if self._tls is not None:
            stream = trio.SSLStream(stream, self._tls, server_hostname=self._host, https_compatible=True)
        async with stream:
            connection = h11.Connection(h11.CLIENT)
            headers = list(self._headers)
            if content:
                headers += [("Content-Type", self.content_type), ("Content-Length", str(len(content)))]
            data = connection.send(h11.Request(method=method, target=target, headers=headers)) or b""
            if content:
                data += connection.send(h11.Data(data=content)) or b""
            data += connection.send(h11.EndOfMessage()) or b""
            await stream.send_all(data)
            status = 0
            received = bytearray()
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    data = bytes(await stream.receive_some(_READ_BYTES))
                    if not data and connection.their_state is h11.SEND_RESPONSE:
                        hint = "" if self._tls is None else "; it may require a certificate of the client"
                        raise RegistryError(
                            0, 0, f"{self.url} closed the connection without a response{hint}"
                        )
                    connection.receive_data(data)
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    received += event.data
                    if len(received) > self.answer_bytes_max:
                        raise RegistryError(
                            0, 0, f"{self.url} answers with more than {self.answer_bytes_max} bytes"
                        )
                elif isinstance(event, h11.EndOfMessage):
                    return status, bytes(received)


def _reason_of(error: BaseException) -> str:
    """Return a short reason for a failed connection; for TLS, with a remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OF_NAMES:
            return f"its certificate is of another name ({error.verify_message})"
        return f"its certificate is not trusted ({error.verify_message}): name its CA"
    if isinstance(error, ssl.SSLError):
        text = error.reason or str(error)
        if text in _OF_OUR_CERTIFICATE:
            return f"it wants a certificate of the client, or another one ({text})"
        if text in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            return "it does not speak TLS: http:// is expected"
        return f"TLS fails ({text})"
    return reason_of(error)


_OF_NAMES = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_OF_OUR_CERTIFICATE = (
    "TLSV13_ALERT_CERTIFICATE_REQUIRED", "TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN", "SSLV3_ALERT_HANDSHAKE_FAILURE", "SSLV3_ALERT_CERTIFICATE_EXPIRED",
)  # fmt: skip


def _json_of(data: bytes) -> Any:
    """Return a response's JSON; None if it is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
