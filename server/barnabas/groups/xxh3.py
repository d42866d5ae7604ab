"""XXH3, the 64-bit hash (seed 0) by which Kafka knows whether the topics of a group are still the same. Pure.

The rule: the same bytes give the same signed number as Kafka's coordinator writes into its groups' records (KIP-1101), so
that a group that Kafka began goes on here without a new epoch.
"""

from __future__ import annotations

import struct

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
M64 = 0xFFFFFFFFFFFFFFFF
M32 = 0xFFFFFFFF
PRIME32_1, PRIME32_2, PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64_1, PRIME64_2, PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
PRIME64_4, PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PRIME_MIX = 0x165667919E3779F9
STRIPE = 64
STRIPES_OF_BLOCK = (len(SECRET) - STRIPE) // 8
SHORT_MAX, MIDDLE_MAX, LONG_MIN = 16, 128, 241

_STRIPE = struct.Struct("<8Q")
_KEYS = [_STRIPE.unpack_from(SECRET, 8 * number) for number in range(STRIPES_OF_BLOCK + 1)]
_LAST_KEY = _STRIPE.unpack_from(SECRET, len(SECRET) - STRIPE - 7)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _folded(one: int, other: int) -> int:
    """Both halves of the product, as one."""
    product = one * other
    return product & M64 ^ product >> 64


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * PRIME_MIX & M64
    return value ^ value >> 32


def _avalanche_old(value: int) -> int:
    """The last step of XXH64, which the shortest inputs keep."""
    value ^= value >> 33
    value = value * PRIME64_2 & M64
    value ^= value >> 29
    value = value * PRIME64_3 & M64
    return value ^ value >> 32


def xxh3(data: bytes) -> int:
    """The hash as a signed 64-bit number."""
    size = len(data)
    if size <= SHORT_MAX:
        value = _short(data)
    elif size <= MIDDLE_MAX:
        value = _middle(data)
    elif size < LONG_MIN:
        value = _middle_long(data)
    else:
        value = _long(data)
    return value - (1 << 64) if value >> 63 else value


def _short(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _word(data, 0) ^ (_word(SECRET, 24) ^ _word(SECRET, 32))
        high = _word(data, size - 8) ^ (_word(SECRET, 40) ^ _word(SECRET, 48))
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _folded(low, high) & M64)
    if size >= 4:
        mixed = _half(data, size - 4) + (_half(data, 0) << 32)
        mixed ^= _word(SECRET, 8) ^ _word(SECRET, 16)
        mixed ^= (mixed << 49 | mixed >> 15) & M64 ^ (mixed << 24 | mixed >> 40) & M64
        mixed = mixed * 0x9FB21C651E98DF25 & M64
        mixed ^= (mixed >> 35) + size
        mixed = mixed * 0x9FB21C651E98DF25 & M64
        return mixed ^ mixed >> 28
    if size:
        packed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_old(packed ^ _half(SECRET, 0) ^ _half(SECRET, 4))
    return _avalanche_old(_word(SECRET, 56) ^ _word(SECRET, 64))


def _mixed(data: bytes, at: int, key: int) -> int:
    return _folded(_word(data, at) ^ _word(SECRET, key), _word(data, at + 8) ^ _word(SECRET, key + 8))


def _middle(data: bytes) -> int:
    size = len(data)
    value = size * PRIME64_1
    for number in range((size - 1) // 32, -1, -1):
        value += _mixed(data, 16 * number, 32 * number)
        value += _mixed(data, size - 16 * (number + 1), 32 * number + 16)
    return _avalanche(value & M64)


def _middle_long(data: bytes) -> int:
    size = len(data)
    value = size * PRIME64_1
    for number in range(8):
        value += _mixed(data, 16 * number, 16 * number)
    value = _avalanche(value & M64)
    for number in range(8, size // 16):
        value += _mixed(data, 16 * number, 16 * (number - 8) + 3)
    value += _mixed(data, size - 16, 136 - 17)
    return _avalanche(value & M64)


def _long(data: bytes) -> int:
    size = len(data)
    lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]
    for number in range((size - 1) // STRIPE):
        in_block = number % STRIPES_OF_BLOCK
        _accumulate(lanes, _STRIPE.unpack_from(data, number * STRIPE), _KEYS[in_block])
        if in_block == STRIPES_OF_BLOCK - 1:
            _scramble(lanes)
    _accumulate(lanes, _STRIPE.unpack_from(data, size - STRIPE), _LAST_KEY)
    value = size * PRIME64_1
    for pair in range(4):
        at = 11 + 16 * pair
        value += _folded(lanes[2 * pair] ^ _word(SECRET, at), lanes[2 * pair + 1] ^ _word(SECRET, at + 8))
    return _avalanche(value & M64)


def _accumulate(lanes: list[int], stripe: tuple[int, ...], key: tuple[int, ...]) -> None:
    for lane in range(8):
        word = stripe[lane]
        keyed = word ^ key[lane]
        lanes[lane ^ 1] = lanes[lane ^ 1] + word & M64
        lanes[lane] = lanes[lane] + (keyed & M32) * (keyed >> 32) & M64


def _scramble(lanes: list[int]) -> None:
    keys = _KEYS[STRIPES_OF_BLOCK]
    for lane, value in enumerate(lanes):
        lanes[lane] = ((value ^ value >> 47) ^ keys[lane]) * PRIME32_1 & M64
