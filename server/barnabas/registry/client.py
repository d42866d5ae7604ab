"""A client for schema registries, Confluent's and those that do as it does.

    client = RegistryClient("http://localhost:8081")
    schema = await client.schema(7)

The rule: what can never change, the schema of an id and that of a version, is asked for once.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import h11
import trio

from barnabas.network.dialing import dial, reason_of
from barnabas.registry.addresses import origin_of, split, without_secret
from barnabas.registry.errors import RegistryError
from barnabas.registry.schemas import Registered, Schema

T = TypeVar("T")

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
CACHED_MAX = 10_000
"""Schemas of ids, and those of versions, that are kept."""
_READ_BYTES = 64 * 1024


class RegistryClient:
    """A client of one registry with the HTTP API of Confluent's, 8.1. Each request has a connection of its own.

    Schemas by id and by version are cached, 1,000 of each. All calls raise RegistryError, with the registry's status and
    code, or 0 and 0 where no registry responded.
    """

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
        """Connect to nothing yet. Raises ValueError for a URL that is none.

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
            ("Accept", f"{CONTENT_TYPE}, application/json"),
            ("User-Agent", "barnabas"),
            ("Connection", "close"),
        ]
        if not user:  # a name and a password are of one party
            user, password = unquote(where.username or ""), unquote(where.password or "")
        if token:
            self._headers.append(("Authorization", f"Bearer {token}"))
        elif user:
            login = b64encode(f"{user}:{password}".encode()).decode()
            self._headers.append(("Authorization", f"Basic {login}"))
        self._has_login = bool(token or user)
        self._by_id: dict[int, Schema] = {}
        self._by_version: dict[tuple[str, int], Registered] = {}
        self._asking: dict[object, trio.Event] = {}

    async def schema(self, schema_id: int, subject: str = "") -> Schema:
        """Return the schema with an id.

        An id counts within a context: `subject` (as `:.CONTEXT:NAME`) names one other than the default, and is not cached.
        Raises RegistryError, with code 40403 for an unknown id.
        """
        if subject or schema_id not in self._by_id:
            query = f"?subject={_quoted(subject)}" if subject else ""
            path = f"/schemas/ids/{schema_id}{query}"
            if subject:
                return Schema.of(await self.ask("GET", path))
            return await self._once(self._by_id, schema_id, lambda: self._read(path, Schema.of))
        return self._by_id[schema_id]

    async def version(self, subject: str, version: int) -> Registered:
        """Return a version of a subject by its number, also a deleted one, as references of others may lead to it.

        Raises RegistryError, with code 40401 for an unknown subject and 40402 for an unknown version.
        """
        path = f"/subjects/{_quoted(subject)}/versions/{version}?deleted=true"
        return await self._once(self._by_version, (subject, version), lambda: self._read(path, _registered))

    async def latest(self, subject: str) -> Registered:
        """Return the newest version of a subject that is not deleted. Raises RegistryError."""
        return await self._read(f"/subjects/{_quoted(subject)}/versions/latest", _registered)

    async def subjects(self) -> list[str]:
        """Return the names of all subjects that are not deleted, in order. Raises RegistryError."""
        subjects: list[str] = await self.ask("GET", "/subjects")
        return subjects

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Return the id of a schema in a subject; registers it as the newest version unless a version has it already.

        With `normalize` the registry compares and keeps the schema in its normal form. Raises RegistryError, with status
        409 for a schema that breaks the subject's compatibility level, and code 42201 for an invalid one.
        """
        path = f"/subjects/{_quoted(subject)}/versions"
        response = await self.ask("POST", f"{path}?normalize=true" if normalize else path, schema.plain())
        return int(response["id"])

    async def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> Registered:
        """Return the version of a subject with this schema. Raises RegistryError, with code 40403 if there is none."""
        path = f"/subjects/{_quoted(subject)}"
        return _registered(
            await self.ask("POST", f"{path}?normalize=true" if normalize else path, schema.plain())
        )

    async def _read(self, path: str, read: Callable[[Any], T]) -> T:
        value = await self.ask("GET", path)
        try:
            return read(value)
        except (ValueError, KeyError, TypeError) as error:
            raise RegistryError(
                0, 0, f"{self.url} has no schema in its response to {path}: {error}"
            ) from None

    async def _once(self, results: dict[Any, T], key: Any, ask: Callable[[], Awaitable[T]]) -> T:
        """Return a cached result, or ask for it: once, also for other tasks that need it meanwhile."""
        while key not in results:
            place = (id(results), key)
            if (others := self._asking.get(place)) is not None:
                await others.wait()
                continue
            self._asking[place] = trio.Event()
            try:
                result = await ask()
                if len(results) >= CACHED_MAX:
                    del results[next(iter(results))]
                results[key] = result
            finally:
                self._asking.pop(place).set()
        return results[key]

    async def ask_unread(self, path: str) -> bytes:
        """Return the body of the response to a GET unparsed, as a long list is parsed elsewhere. Raises RegistryError."""
        status, data = await self._answer("GET", path, b"")
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
            raise RegistryError(0, 0, f"{self.url} is not a registry: its response to {path} is not JSON")
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
        """Return the error of an answer that is none; whatever is not a registry has no code and no text for it."""
        is_told = isinstance(value, dict) and isinstance(value.get("error_code"), int)
        text = str(value.get("message", "")) if is_told else ""
        code = value["error_code"] if is_told else status
        if status == HTTPStatus.UNAUTHORIZED:
            complaint = "refused the login" if self._has_login else "requires a login"
            text = f"{self.url} {complaint}" + (f": {text}" if text else "")
        elif not is_told:
            what = f"{self.url} responded to {path} with status {status}"
            is_other = status < HTTPStatus.BAD_REQUEST or status == HTTPStatus.NOT_FOUND
            text = f"{what}: is it the address of a registry?" if is_other else what
        return RegistryError(status, code, text)

    async def _exchange(self, method: str, target: str, content: bytes) -> tuple[int, bytes]:
        stream: trio.abc.Stream = await dial(self._host, self._port)
        if self._tls is not None:
            stream = trio.SSLStream(stream, self._tls, server_hostname=self._host, https_compatible=True)
        async with stream:
            connection = h11.Connection(h11.CLIENT)
            headers = list(self._headers)
            if content:
                headers += [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(content)))]
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
                    if len(received) > ANSWER_BYTES_MAX:
                        raise RegistryError(
                            0, 0, f"{self.url} answers with more than {ANSWER_BYTES_MAX} bytes"
                        )
                elif isinstance(event, h11.EndOfMessage):
                    return status, bytes(received)


def _reason_of(error: BaseException) -> str:
    """Return in a few words why there is no connection: of TLS what to change."""
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
    """Return what is answered as JSON; None for what is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _registered(value: Any) -> Registered:
    return Registered(value["subject"], int(value["version"]), int(value["id"]), Schema.of(value))


def _quoted(text: str) -> str:
    return quote(text, safe="")
