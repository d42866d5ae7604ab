"""Large messages are decoded and encoded in a thread that lets the event loop run in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.environment.real import real_environment
from barnabas.serving import encoding as codecs
from barnabas.serving.encoding import CHUNKS_PER_JOIN, CodecWorker
from barnabas.wire.generated.describe_groups import DescribeGroupsResponse
from barnabas.wire.headers import encode_response


async def test_a_large_response_is_joined_a_little_at_a_time(monkeypatch) -> None:
    groups = [DescribeGroupsResponse.DescribedGroup(group_id=f"group-{number}") for number in range(10_000)]
    response = DescribeGroupsResponse(groups=groups)
    joined: list[int] = []
    codec_of = codecs.response_codec

    def counted(key: int) -> Any:
        def join(chunks: list[Any]) -> list[Any]:
            joined.append(len(chunks))
            return codec_of(key).joined(chunks)

        return SimpleNamespace(joined=join)

    monkeypatch.setattr(codecs, "response_codec", counted)
    context = SimpleNamespace(api_key=15, api_version=5, correlation_id=7)
    chunks, codes = await CodecWorker(real_environment().threads, 250_000).encode(context, response)  # type: ignore[arg-type]
    assert len(joined) > 1
    assert max(joined) <= CHUNKS_PER_JOIN
    assert b"".join(chunks) == b"".join(encode_response(15, 5, 7, response))  # type: ignore[arg-type]
    assert codes == {0: 10_000}
