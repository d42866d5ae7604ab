"""Keys of segments and their chunks; that Java's library understands them is shown in compat/tiered."""

import pytest

from barnabas.tiered.aiven.encryption import (
    OVERHEAD_BYTES,
    ChunkCipher,
    EncryptionError,
    KeyPair,
    KeyRing,
    unwrap,
    wrap,
)
from barnabas.tiered.aiven.manifest import Encryption
from tests.support.rsa_keys import key_files, private_key


@pytest.fixture
def ring(tmp_path):
    return KeyRing({"first": KeyPair.from_files(*key_files(tmp_path))}, "first")


@pytest.mark.parametrize("size", [0, 1, 32, 256 - 130])
def test_wrapped_key_is_unwrapped(size) -> None:
    key, message = private_key(), bytes(range(size))
    wrapped = wrap(key.public_key(), message)
    assert len(wrapped) == 256
    assert wrapped != wrap(key.public_key(), message)
    assert unwrap(key, wrapped) == message


def test_key_too_long_for_the_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="127 bytes are too long"):
        wrap(private_key().public_key(), bytes(127))


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: bytes(256), lambda data: b"\xff" * 256,
                                    lambda data: data[:9] + bytes((data[9] ^ 1,)) + data[10:]])  # fmt: skip
def test_damaged_wrapped_key_is_refused_without_details(damage) -> None:
    wrapped = wrap(private_key().public_key(), b"key")
    with pytest.raises(ValueError, match=r"^decryption failed$"):
        unwrap(private_key(), damage(wrapped))


def test_chunk_is_bound_to_key_and_additional_data() -> None:
    cipher = ChunkCipher(bytes(32), b"segment")
    stored = cipher.encrypt(b"chunk")
    assert len(stored) == 5 + OVERHEAD_BYTES
    assert stored != cipher.encrypt(b"chunk")
    assert cipher.decrypt(stored) == b"chunk"
    for other in (ChunkCipher(bytes(31) + b"1", b"segment"), ChunkCipher(bytes(32), b"another")):
        with pytest.raises(EncryptionError, match="damaged, or of another key"):
            other.decrypt(stored)
    with pytest.raises(EncryptionError, match="of 27 bytes"):
        cipher.decrypt(stored[:27])


def test_ring_opens_what_it_closed(ring) -> None:
    cipher, encryption = ring.new_cipher()
    assert encryption.data_key.startswith("first:")
    assert len(encryption.aad) == 32
    assert ring.cipher(encryption).decrypt(cipher.encrypt(b"chunk")) == b"chunk"


@pytest.mark.parametrize(
    ("data_key", "problem"),
    [
        ("second:AAAA", "'second' is not among"),
        ("first", "cannot be unwrapped with 'first'"),
        ("first:AAAA", "cannot be unwrapped with 'first': decryption failed"),
        ("first:%", "cannot be unwrapped with 'first'"),
    ],
)
def test_key_that_the_ring_cannot_unwrap_is_an_error(ring, data_key, problem) -> None:
    with pytest.raises(EncryptionError, match=problem):
        ring.cipher(Encryption(data_key, b""))


def test_files_that_are_no_pair_are_refused(tmp_path) -> None:
    public, private = key_files(tmp_path)
    _, other = key_files(tmp_path, 1)
    with pytest.raises(ValueError, match="not a pair"):
        KeyPair.from_files(public, other)
    with pytest.raises((ValueError, TypeError)):
        KeyPair.from_files(private, public)
