"""No request of any API, version and array has more entries than max.request.entries allows: it is refused undecoded."""

from __future__ import annotations

import logging
import struct

import pytest
import trio

from barnabas.serving.apis import Api
from barnabas.serving.error_responses import top_level_response
from barnabas.serving.release import KAFKA_4
from barnabas.tools.inspection.errors import error_codes
from barnabas.tools.inspection.frames import read_response
from barnabas.wire.generated.errors import ErrorCode
from tests.support.brokers import running
from tests.support.wide_requests import places, wide

ENTRIES_MAX = 32_768


@pytest.fixture(scope="module")
def apis() -> list[Api]:
    return [api for api in KAFKA_4.apis.values() if not api.member_only]


def layouts(api: Api) -> list[int]:
    """The versions of an API with requests laid out otherwise than in the version before, or answered otherwise."""
    seen = set()
    versions = []
    for version in range(api.min_version, api.max_version + 1):
        kind = api.decoders[version], top_level_response(api, version, 42, "") is None
        if kind not in seen:
            seen.add(kind)
            versions.append(version)
    return versions


async def answered(address: tuple[str, int], frame: bytes) -> bytes | None:
    """The answer to a request, None where the connection is closed instead."""
    stream = await trio.open_tcp_stream(*address)
    async with stream:
        data = b""
        try:
            await stream.send_all(frame)
            while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
                part = await stream.receive_some()
                if not part:
                    return None
                data += part
        except trio.BrokenResourceError:
            return None
    return data[4:]


async def test_one_entry_too_many_is_refused_wherever_it_is(
    apis: list[Api], tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"max_request_entries": str(ENTRIES_MAX), "telemetry_enable": "true"}
    async with running([tmp_path], **settings) as client:
        address = client.broker.listeners[0].addresses[0]
        for api in apis:
            for version in layouts(api):
                for place in places(api.name, version):
                    frame = wide(api.name, version, place, ENTRIES_MAX + 1)
                    answer = await answered(address, frame)
                    label = f"{api.name} v{version} {'.'.join(place)}"
                    if top_level_response(api, version, 42, "") is None:
                        assert answer is None, label
                    else:
                        assert answer is not None, label
                        codes = error_codes(read_response(answer, api.key, version).message)
                        assert [int(code.code) for code in codes] == [ErrorCode.INVALID_REQUEST], label


@pytest.mark.parametrize(("name", "version"), [("DescribeGroups", 5), ("ListGroups", 4)])
async def test_the_log_names_client_api_size_and_setting(
    name: str, version: int, apis: list[Api], tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    (api,) = [api for api in apis if api.name == name]
    place = next(iter(places(name, version)))
    frame = wide(name, version, place, ENTRIES_MAX + 1)
    async with running([tmp_path], max_request_entries=str(ENTRIES_MAX)) as client:
        with caplog.at_level(logging.WARNING):
            await answered(client.broker.listeners[0].addresses[0], frame)
    (line,) = [
        record.getMessage() for record in caplog.records if "max.request.entries" in record.getMessage()
    ]
    assert f"{name} v{version}" in line
    assert "client 'hostile'" in line
    assert f"{len(frame) - 4:,} bytes" in line
    assert f"{ENTRIES_MAX:,}" in line
    assert api.key


async def test_as_many_as_are_allowed_are_answered(tmp_path) -> None:
    frame = wide("OffsetFetch", 7, ("Topics",), ENTRIES_MAX - 1 >> 1)
    async with running([tmp_path], max_request_entries=str(ENTRIES_MAX)) as client:
        answer = await answered(client.broker.listeners[0].addresses[0], frame)
    assert answer is not None
    assert read_response(answer, 9, 7).message is not None
