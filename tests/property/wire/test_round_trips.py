"""Whatever a version can carry survives encoding and decoding, and nothing else happens to it."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import examples
from tests.support.messages import all_messages, all_names, codec_of, random_message

seeds = st.integers(min_value=0, max_value=(1 << 64) - 1)


@pytest.mark.parametrize("name", all_names())
@settings(max_examples=examples(8))
@given(seed=seeds)
def test_every_message_survives_in_every_version(name, seed):
    message = all_messages()[name]
    codec, random = codec_of(message), Random(seed)
    for version in message.versions:
        sent = random_message(message, version, random, unknown_tags=True)
        data = codec.encode_bytes(sent, version)
        assert codec.decode_whole(data, version) == sent
        again = codec.decode_whole(memoryview(bytearray(data)), version)
        assert codec.encode_bytes(again, version) == data


@pytest.mark.parametrize("name", all_names())
@settings(max_examples=examples(2))
@given(seed=seeds)
def test_a_message_can_lie_anywhere_in_a_buffer(name, seed):
    message = all_messages()[name]
    codec, random = codec_of(message), Random(seed)
    version = random.choice(list(message.versions))
    sent = random_message(message, version, random)
    data = codec.encode_bytes(sent, version)
    assert codec.decode(b"before" + data + b"after", 6, version) == (sent, 6 + len(data))
