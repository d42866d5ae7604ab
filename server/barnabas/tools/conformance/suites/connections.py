"""Connections: order, pieces of frames, what ends one and what does not."""

from __future__ import annotations

from collections.abc import Iterator

import trio

from barnabas.tools.conformance.cases import Case
from barnabas.tools.conformance.suites.acting import described
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.probing.exchanges import ClosedByBrokerError, Exchange, frame_of
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.headers import decode_response

API_VERSIONS, METADATA = 18, 3
MANY = 200


def cases() -> Iterator[Case]:
    """Return the cases of this module."""
    yield from described(
        "connections",
        "protocol guide",
        {
            "in order": _in_order,
            "byte by byte": _byte_by_byte,
            "correlation ids": _correlation,
            "an unknown API": _unknown_api,
            "an unknown version of ApiVersions": _unknown_version,
            "a frame of negative size": _negative,
            "an empty frame": _empty,
            "a frame larger than any limit": _huge,
            "one that ends beside another": _beside,
            "waits for nobody else": _waiting,
            "half a header": _half_header,
        },
        "ApiVersions",
        "Metadata",
    )


def _versions(correlation_id: int = 1) -> bytes:
    return frame_of(API_VERSIONS, 0, b"", correlation_id=correlation_id)


async def _in_order(trial: Trial) -> None:
    """Requests that come at once are answered one after the other, in their order."""
    async with trial.connection() as wire:
        await wire.send(b"".join(_versions(number) for number in range(MANY)))
        for number in range(MANY):
            correlation_id, _ = decode_response(memoryview(await wire.frame()), API_VERSIONS, 0)
            trial.check(correlation_id == number, f"answer {number} has the correlation id {correlation_id}")


async def _byte_by_byte(trial: Trial) -> None:
    """A request may come in pieces of any size."""
    async with trial.connection() as wire:
        for byte in _versions(5):
            await wire.send(bytes([byte]))
        correlation_id, answer = decode_response(memoryview(await wire.frame()), API_VERSIONS, 0)
        trial.check(
            (correlation_id, answer.error_code) == (5, 0),
            f"answered with {correlation_id}, {answer.error_code}",
        )


async def _correlation(trial: Trial) -> None:
    """Any int32 is a correlation id, and is echoed."""
    async with trial.connection() as wire:
        for number in (0, -1, 2**31 - 1, -(2**31)):
            await wire.ask_frame(_versions(number), API_VERSIONS, 0, correlation_id=number)


async def _closes(trial: Trial, data: bytes) -> None:
    async with trial.connection() as wire:
        exchange = Exchange("", METADATA, 0, data)
        trial.journal.append(exchange)
        await wire.send(data, exchange)
        try:
            await wire.frame(exchange)
        except ClosedByBrokerError:
            return
    trial.check(False, "it is answered; the connection should end")


async def _unknown_api(trial: Trial) -> None:
    """An API that there is not ends the connection."""
    await _closes(trial, frame_of(9999, 0, b""))


async def _unknown_version(trial: Trial) -> None:
    """An unknown version of ApiVersions is UNSUPPORTED_VERSION, in version 0, with its own versions alone (KIP-511)."""
    async with trial.connection() as wire:
        for version in (99, 32767):
            answer = await wire.ask_frame(
                frame_of(API_VERSIONS, version, b"?"), API_VERSIONS, version, correlation_id=1
            )
            trial.expect(answer, {"error_code": ErrorCode.UNSUPPORTED_VERSION})
            named = [api_key for api_key in answer.api_keys if api_key.api_key == API_VERSIONS]
            trial.check(
                len(named) == len(answer.api_keys) == 1,
                f"{len(answer.api_keys)} APIs are named, not ApiVersions alone",
            )
        await wire.ask_frame(_versions(), API_VERSIONS, 0)


async def _negative(trial: Trial) -> None:
    """A frame of negative size ends the connection."""
    await _closes(trial, b"\xff\xff\xff\xff")


async def _empty(trial: Trial) -> None:
    """A frame of no bytes ends the connection."""
    await _closes(trial, bytes(4))


async def _huge(trial: Trial) -> None:
    """A frame that says that it is larger than socket.request.max.bytes ends the connection before it has come."""
    await _closes(trial, b"\x7f\xff\xff\xff")


async def _half_header(trial: Trial) -> None:
    """A frame with half a header ends the connection."""
    await _closes(trial, b"\0\0\0\x03\0\x12\0")


async def _beside(trial: Trial) -> None:
    """A connection that ends does not end another."""
    async with trial.connection() as wire:
        await wire.ask_frame(_versions(), API_VERSIONS, 0)
        await _closes(trial, frame_of(9999, 0, b""))
        await wire.ask_frame(_versions(), API_VERSIONS, 0)


async def _waiting(trial: Trial) -> None:
    """Half a request on one connection holds up no other."""
    async with trial.connection() as slow, trial.connection() as wire:
        frame = _versions(3)
        await slow.send(frame[:7])
        for _ in range(5):
            await wire.ask_frame(_versions(), API_VERSIONS, 0)
        await trio.sleep(0.05)
        await slow.send(frame[7:])
        correlation_id, _ = decode_response(memoryview(await slow.frame()), API_VERSIONS, 0)
        trial.check(correlation_id == 3, f"the correlation id is {correlation_id}")
