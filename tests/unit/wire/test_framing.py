"""Frame sizes are judged before anybody makes room for a frame."""

import pytest

from barnabas.errors import PeerError
from barnabas.wire.errors import DecodeError
from barnabas.wire.framing import check_frame_size


@pytest.mark.parametrize("size", [-1, -(1 << 31), 101])
def test_a_size_outside_of_the_limits_is_the_peers_fault(size):
    with pytest.raises(PeerError, match=f"{size}, outside of 0 to 100"):
        check_frame_size(size.to_bytes(4, "big", signed=True), 0, 100)


@pytest.mark.parametrize(
    ("start", "what"), [(b"GET ", "HTTP"), (b"POST", "HTTP"), (b"\x16\x03\x01\x02", "TLS")]
)
def test_other_protocols_are_named(start, what):
    with pytest.raises(DecodeError, match=what):
        check_frame_size(start)
