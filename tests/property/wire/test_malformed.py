"""Whatever bytes a peer sends: decoding gives a message or a DecodeError, in no more room than it needs."""

import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import registry
from barnabas.wire.errors import DecodeError
from barnabas.wire.headers import parse_request_header
from tests.support.effort import examples
from tests.support.messages import all_messages, all_names, codec_of, random_message

seeds = st.integers(min_value=0, max_value=(1 << 64) - 1)

EVIL = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 12,
    b"\xff\x7f",
)
"""Huge and negative counts, long varints: what an attacker puts where a length is expected."""


def decode(codec, data, version):
    """Say whether `data` was a message; anything but a DecodeError fails the test."""
    try:
        codec.decode(data, 0, version)
    except DecodeError as error:
        caught = error
    else:
        return True
    assert 0 <= caught.offset <= len(data)
    assert caught.field
    return False


@pytest.mark.parametrize("name", all_names())
@settings(max_examples=examples(2))
@given(seed=seeds)
def test_no_start_of_a_message_is_a_message(name, seed):
    message = all_messages()[name]
    codec, random = codec_of(message), Random(seed)
    for version in message.versions:
        data = codec.encode_bytes(random_message(message, version, random, unknown_tags=True), version)
        cuts = range(len(data)) if len(data) < 60 else sorted(random.sample(range(len(data)), 60))
        for cut in cuts:
            assert not decode(codec, data[:cut], version)


@pytest.mark.parametrize("name", all_names())
@settings(max_examples=examples(3))
@given(seed=seeds)
def test_damaged_bytes_raise_nothing_but_a_decode_error(name, seed):
    message = all_messages()[name]
    codec, random = codec_of(message), Random(seed)
    for version in message.versions:
        data = codec.encode_bytes(random_message(message, version, random), version)
        for _ in range(6):
            damaged = bytearray(data)
            for _ in range(random.randint(1, 3)):
                at = random.randrange(len(damaged) + 1)
                evil = (
                    random.choice(EVIL) if random.random() < 0.5 else random.randbytes(random.randint(1, 4))
                )
                damaged[at : at + len(evil)] = evil
            decode(codec, damaged, version)


@pytest.mark.parametrize("key", registry.keys())
def test_a_claimed_count_makes_no_room_before_it_is_checked(key):
    """At each position of a request, claim two thousand million of whatever may stand there."""
    codec = registry.request_codec(key)
    name = codec.name
    random = Random(key)
    for version in {codec.min_version, codec.max_version}:
        data = codec.encode_bytes(random_message(all_messages()[name], version, random), version)
        data = data[:200]
        codec.message()
        tracemalloc.start()
        for at in range(len(data)):
            for evil in EVIL[1], EVIL[3]:
                decode(codec, data[:at] + evil + data[at + len(evil) :], version)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 256 * 1024


@given(data=st.binary(max_size=64))
def test_no_bytes_break_the_request_header(data):
    try:
        header = parse_request_header(data)
    except DecodeError:
        return
    assert 8 <= header.body_position <= len(data)
