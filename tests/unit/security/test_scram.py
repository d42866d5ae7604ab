"""SCRAM credentials: the vectors of the RFCs, Kafka's text, and what is never shown."""

import hmac
from base64 import b64decode, b64encode

import pytest

from barnabas.security import scram, tokens
from barnabas.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramMechanism

SHA_1 = ScramMechanism("SCRAM-SHA-1", 0, "sha1")

# Mechanism, salt, client's nonce, server's nonce, proof and signature of user `user` with password `pencil`:
# RFC 5802 section 5, RFC 7677 section 3.
EXCHANGES = [
    (
        SHA_1, "QSXCR+Q6sek8bf92", "fyko+d2lbbFgONRv9qkxdawL", "3rfcNHYJY1ZVvWVs7j",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=", "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        SCRAM_SHA_256, "W22ZaJ0SNY7soEsUEjb6gQ==", "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", EXCHANGES, ids=["RFC 5802", "RFC 7677"])
def test_credential_accepts_the_rfc_proof_and_proves_the_server(row):
    mechanism, salt, client_nonce, server_nonce, proof, signature = row
    nonce = client_nonce + server_nonce
    message = f"n=user,r={client_nonce},r={nonce},s={salt},i=4096,c=biws,r={nonce}".encode()
    kept = scram.credential(mechanism, "pencil", b64decode(salt), 4096)
    client_signature = hmac.digest(kept.stored_key, message, mechanism.algorithm)
    key = bytes(a ^ b for a, b in zip(b64decode(proof), client_signature, strict=True))
    assert scram.stored_key(mechanism, key) == kept.stored_key
    assert b64encode(hmac.digest(kept.server_key, message, mechanism.algorithm)).decode() == signature


def test_client_salted_password_makes_the_same_credential():
    salt = b"sixteen bytes..."
    for mechanism in scram.MECHANISMS.values():
        salted = scram.salted_password(mechanism, "päss", salt, 5000)
        credential = scram.credential_of_salted(mechanism, salted, salt, 5000)
        assert credential == scram.credential(mechanism, "päss", salt, 5000)


def test_text_of_a_credential_is_kafkas_and_is_read_again():
    kept = scram.credential(SCRAM_SHA_512, "secret", b"salt", 8192)
    text = scram.to_text(kept)
    assert text.startswith("salt=c2FsdA==,stored_key=")
    assert text.endswith(",iterations=8192")
    assert scram.of_text(text) == kept


@pytest.mark.parametrize(
    "text", ["", "salt=c2FsdA==", "salt=?,stored_key=AA==,server_key=AA==,iterations=1", "a=hunter2,b,c,d"]
)
def test_invalid_credential_is_refused_without_showing_it(text):
    with pytest.raises(ValueError, match="a SCRAM credential has") as caught:
        scram.of_text(text)
    assert "hunter2" not in str(caught.value)


def test_nothing_of_a_credential_is_in_its_repr():
    kept = scram.credential(SCRAM_SHA_256, "secret", b"grains", 4096)
    assert repr(kept) == "ScramCredential(iterations=4096)"


def test_decoy_is_steady_differs_by_user_and_looks_real():
    decoy, same, other = (scram.decoy(SCRAM_SHA_512, user, b"secret") for user in ("a", "a", "b"))
    assert decoy == same != other
    real = scram.credential(SCRAM_SHA_512, "secret", b"x" * 24, 4096)
    for name in ("salt", "stored_key", "server_key"):
        assert len(getattr(decoy, name)) == len(getattr(real, name))


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_decoy_salt_reveals_nothing_of_its_keys(mechanism):
    kept = scram.decoy(mechanism, "a", b"secret")
    assert len({kept.salt[:16], kept.stored_key[:16], kept.server_key[:16]}) == 3
    assert kept.iterations == mechanism.iterations_min
    others = [scram.decoy(mechanism, "a", b"another"), scram.decoy(mechanism, "ab", b"secret")]
    for name in ("salt", "stored_key", "server_key"):
        assert len({getattr(decoy, name) for decoy in (kept, *others)}) == 3


def test_hmac_of_a_token_is_hmac_sha_512_of_its_id():
    mac = tokens.token_hmac("key", "id")
    assert mac == hmac.digest(b"key", b"id", "sha512")
    assert b64decode(tokens.token_password(mac)) == mac
