"""Error texts that are longer than a string may be: in each place of each response."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import SimpleNamespace

import pytest

from barnabas.serving.encoding import encode_with_texts_cut
from barnabas.serving.error_texts import SHOWN, cut_error_texts
from barnabas.serving.release import KAFKA_4
from barnabas.wire.errors import EncodeError
from barnabas.wire.generated.delete_topics import DeleteTopicsResponse
from barnabas.wire.headers import decode_response
from barnabas.wire.primitives import STRING_BYTES_MAX
from tests.support.effort import drawing
from tests.support.messages import Builder, all_messages, codec_of

TEXTS = {"error_message", "acknowledge_error_message", "batch_index_error_message", "status_detail"}


def places(struct):
    """Yield each struct with a text in a response, and the name of its field."""
    for field in fields(struct):
        value = getattr(struct, field.name)
        if field.name in TEXTS:
            yield struct, field.name
        for part in value if isinstance(value, list) else [value]:
            if is_dataclass(part):
                yield from places(part)


def is_in(name, version, attribute):
    """Say whether a version of a response has a field, in whichever struct."""
    message = all_messages()[f"{name}Response"]
    shapes = (message, *message.structs.values())
    return any(
        version in field.versions
        for shape in shapes
        for field in shape.fields
        if field.attribute == attribute
    )


def built(name, version):
    message = all_messages()[f"{name}Response"]
    return Builder(message, version, drawing(), unknown_tags=False).struct(
        codec_of(message).message, message.fields
    )


def encoded(key, version, response):
    """Return a response as it is read again."""
    request = SimpleNamespace(api_key=key, api_version=version, correlation_id=1)
    data = b"".join(bytes(chunk) for chunk in encode_with_texts_cut(request, response))
    return decode_response(data[4:], key, version)[1]


@pytest.mark.parametrize("key", KAFKA_4.apis)
@pytest.mark.parametrize("text", ["a" * 2 * STRING_BYTES_MAX, "\u20ac" * (STRING_BYTES_MAX // 3 + 1)])
def test_a_text_of_any_response_is_cut_to_fit(key, text):
    api = KAFKA_4.apis[key]
    for version in range(api.min_version, api.max_version + 1):
        response = built(api.name, version)
        for struct, name in places(response):
            if is_in(api.name, version, name):
                setattr(struct, name, text)
        answer = encoded(key, version, response)
        for struct, name in places(answer):
            shown = getattr(struct, name)
            assert shown in (None, "", text) or shown.startswith(text[:SHOWN] + "... (")


def test_a_text_that_fits_is_left_as_it_is():
    longest = "a" * STRING_BYTES_MAX
    response = DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponse.DeletableTopicResult(name="t", error_message=text)
            for text in (longest, None, "", longest + "a")
        ]
    )
    texts = [topic.error_message for topic in encoded(20, 6, response).responses]
    assert texts[:3] == [longest, None, ""]
    assert texts[3] == "a" * SHOWN + "... (32,768 characters)"


def test_another_string_that_is_too_long_is_our_failure():
    response = DeleteTopicsResponse(
        responses=[DeleteTopicsResponse.DeletableTopicResult(name="a" * (STRING_BYTES_MAX + 1))]
    )
    assert not cut_error_texts(response)
    with pytest.raises(EncodeError):
        encoded(20, 6, response)
