"""Tokens of every SASL mechanism, right, wrong and malformed, by the grammar of each.

The rule: a token that is valid is marked as such where it is made; a login without one is a finding.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import re
import time
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from functools import cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

USER, PASSWORD = "alice", "wonder-land-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
ENTITLED_SHARE = 0.03
"""Share of right credentials, so that the stages after a login are reached too."""
NAMES = (
    "",
    USER,
    "bob",
    "=2C",
    "=",
    "a,b",
    "ü",
    "x" * 300,
    "\0",
    "*",
    "kafka-cluster",
    "tokenid",
    "=3D=2C",
    "ANONYMOUS",
)
NONCES = ("r", "rOprNGfwEbeRWgbNEkqO", "", ",", "\x7f", "x" * 5000, "%s%n", "ü")
EXPECTED_AUDIENCE = "kafka"


def plain(rng: random.Random) -> tuple[bytes, bool]:
    """Return a token of PLAIN, and whether it is valid."""
    if rng.random() < ENTITLED_SHARE:
        return f"\0{USER}\0{PASSWORD}".encode(), True
    parts = [
        rng.choice((*NAMES, PASSWORD[:-1], "secret")) for _ in range(rng.choice((3, 3, 3, 3, 0, 1, 2, 4, 50)))
    ]
    data = "\0".join(parts).encode()
    return data, f"\0{USER}\0{PASSWORD}".encode() in data


def scram_first(rng: random.Random, token_ids: Sequence[str] = ()) -> bytes:
    """Return a first message of SCRAM, most of them well-formed; `token_ids` are those of delegation tokens."""
    gs2 = rng.choice(
        ("n,,", "n,,", "n,,", "y,,", "p=tls-unique,,", "n,a=alice,", "n,a=,", "n", ",,", "", "n,,n,,")
    )
    user = rng.choice((USER, USER, *NAMES))
    is_of_token = bool(token_ids) and rng.random() < 0.3
    if is_of_token:
        user = rng.choice((*token_ids, *token_ids, token_ids[0][:-1]))
    nonce = rng.choice((b64encode(rng.randbytes(18)).decode(), *NONCES))
    extra = rng.choice(
        ("", "", "", ",tokenauth=true", ",m=x", ",x=", ",tokenauth=TRUE,a=b", "," * 100, ",a=b" * 500)
    )
    if is_of_token and rng.random() < 0.7:
        gs2, extra = "n,,", ",tokenauth=true"
    fields = [f"n={user}", f"r={nonce}"]
    if rng.random() < 0.1:
        rng.shuffle(fields)
    if rng.random() < 0.05:
        fields.pop(rng.randrange(2))
    return f"{gs2}{','.join(fields)}{extra}".encode()


def scram_final(
    rng: random.Random,
    mechanism: str,
    first: bytes,
    challenge: bytes,
    token: tuple[str, str] = ("", ""),
    ended: tuple[str, str] = ("", ""),
) -> tuple[bytes, bool]:
    """Return a final message for a challenge, and whether it is valid.

    `token` and `ended` are delegation tokens, ids with their passwords: one that lets its owner in, and one that did so.
    """
    fields = dict(re.findall(r"(?:^|,)([a-z])=([^,]*)", challenge.decode(errors="replace")))
    nonce, bare = fields.get("r", ""), first.partition(b",,")[2].decode(errors="replace")
    binding = "biws"
    named = re.search(r"(?:^|,)n=([^,]*)", bare)
    user = named[1] if named else ""
    passwords = {USER: PASSWORD, token[0]: token[1], ended[0]: ended[1]}
    knows_it = rng.random() < (0.5 if user in (token[0], ended[0]) else ENTITLED_SHARE * 3)
    password = passwords.get(user, PASSWORD) if knows_it else rng.choice(("", "x", PASSWORD + " ", "ü"))
    # A token is one only where it is said to be, and nobody else is.
    is_token = re.search(r",tokenauth=(?i:true)(?:,|$)", bare) is not None
    is_right = knows_it and user == (token[0] if is_token else USER)
    kind = (
        "none"
        if knows_it
        else rng.choice(("none", "nonce", "cut-nonce", "binding", "proof", "missing", "order"))
    )
    if kind == "nonce":
        nonce = rng.choice((nonce[:-1] + "x", nonce + "x", "", "x" * 4000))
    elif kind == "cut-nonce":
        nonce = nonce[: rng.randrange(len(nonce) + 1)]
    elif kind == "binding":
        binding = rng.choice(("biwsYQ==", "eSws", "", "!", "b" * 999))
    without_proof = f"c={binding},r={nonce}"
    proof = _proof(
        mechanism, password, fields, f"{bare},{challenge.decode(errors='replace')},{without_proof}"
    )
    if kind == "proof":
        proof = rng.choice((b"", proof[:-1], proof + b"\0", bytes(len(proof)), rng.randbytes(len(proof))))
    text = f"{without_proof},p={b64encode(proof).decode()}"
    if kind == "missing":
        text = rng.choice(
            (without_proof, f"p={b64encode(proof).decode()}", f"r={nonce}", "", ",,,", text + ",x")
        )
    elif kind == "order":
        text = ",".join(reversed(text.split(",")))
    return text.encode(), is_right


def _proof(mechanism: str, password: str, challenge: dict[str, str], message: str) -> bytes:
    algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    try:
        salt, iterations = b64decode(challenge["s"]), int(challenge["i"])
    except (KeyError, ValueError):
        return b""
    salted = _salted(algorithm, password, salt, iterations)
    key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), message.encode(), algorithm)
    return bytes(a ^ b for a, b in zip(key, signature, strict=True))


@cache
def _salted(algorithm: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)


# --- GSSAPI ---------------------------------------------------------------------------------------------------------

KERBEROS = bytes.fromhex("06092a864886f712010202")
OTHER_MECHANISMS = (
    bytes.fromhex("06062b0601050502"),  # SPNEGO
    bytes.fromhex("060a2b06010401823702020a"),  # NTLM
    bytes.fromhex("0600"),
    bytes.fromhex("06ff2a"),
)


def _der(rng: random.Random, tag: int, content: bytes) -> bytes:
    """Return a value of ASN.1, with the right length most of the time."""
    size = len(content)
    if rng.random() < 0.1:
        size = rng.choice((0, 1, size + 1, size + 100, 0x7FFF, 2**31 - 1, 2**32 - 1))
    if rng.random() < 0.02:
        return bytes((tag, 0x80)) + content  # of no length
    if size < 0x80:
        return bytes((tag, size)) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def _numbered(rng: random.Random, number: int, content: bytes) -> bytes:
    return _der(rng, 0xA0 | number, content)


def _encrypted(rng: random.Random) -> bytes:
    """Return EncryptedData with an unknown key."""
    kind = _numbered(rng, 0, _der(rng, 2, bytes((rng.choice((0, 1, 17, 18, 23, 255)),))))
    content = rng.randbytes(rng.choice((0, 1, 16, 60, 300, 5000)))
    return _der(rng, 0x30, kind + _numbered(rng, 2, _der(rng, 4, content)))


def gssapi(rng: random.Random) -> bytes:
    """Return a token of GSSAPI that needs no ticket: by the grammar of Kerberos (RFC 4121, RFC 4120), or beside it."""
    if rng.random() < 0.1:
        return rng.choice((b"", b"\x60", b"NTLMSSP\0\1\0\0\0" + bytes(24), b"\x05\x04\x01\xff" + bytes(28)))
    realm = _der(rng, 0x1B, rng.choice((b"BARNABAS.TEST", b"", b"\0\n", b"X" * 2000)))
    names = b"".join(_der(rng, 0x1B, rng.choice((b"kafka", b"localhost", b"", b"%s%n"))) for _ in range(2))
    name = _der(
        rng, 0x30, _numbered(rng, 0, _der(rng, 2, b"\x02")) + _numbered(rng, 1, _der(rng, 0x30, names))
    )
    five = _numbered(rng, 0, _der(rng, 2, rng.choice((b"\x05", b"\x05", b"\x04", b"\xff" * 9))))
    ticket = _der(
        rng,
        0x61,
        _der(
            rng,
            0x30,
            five + _numbered(rng, 1, realm) + _numbered(rng, 2, name) + _numbered(rng, 3, _encrypted(rng)),
        ),
    )
    options = _numbered(rng, 2, _der(rng, 3, b"\0" + rng.choice((b"\0\0\0\0", b"\x20\0\0\0", b"\xff"))))
    kind = _numbered(rng, 1, _der(rng, 2, rng.choice((b"\x0e", b"\x0e", b"\x0f", b"\x1e"))))
    request = five + kind + options + _numbered(rng, 3, ticket) + _numbered(rng, 4, _encrypted(rng))
    body = _der(rng, 0x6E, _der(rng, 0x30, request))
    number = rng.choice((b"\x01\0", b"\x01\0", b"\x01\0", b"\x02\0", b"\x03\0", b"\x04\x04", b"\0\0"))
    mechanism = KERBEROS if rng.random() < 0.9 else rng.choice(OTHER_MECHANISMS)
    token = _der(rng, 0x60, mechanism + number + body)
    return damaged(rng, token) if rng.random() < 0.3 else token


def damaged(rng: random.Random, token: bytes) -> bytes:
    """Return a token with bytes changed, removed or added."""
    data = bytearray(token or b"\0")
    kind = rng.randrange(5)
    at = rng.randrange(len(data))
    if kind < 2:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at:at] = rng.randbytes(rng.choice((1, 4, 300)))
    else:
        data += rng.randbytes(rng.choice((1, 16)))
    return bytes(data)


# --- OAUTHBEARER ------------------------------------------------------------------------------------------------------


@cache
def key() -> ECKey:
    """The key that the broker trusts."""
    return ECKey.generate_key("P-256", {"kid": "right"})


@cache
def _stranger() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "right"})


def jwks() -> str:
    """The keys that the broker trusts, as a JWKS."""
    return json.dumps(KeySet([key()]).as_dict(private=False))


def claims(now_s: int, **other: Any) -> dict[str, Any]:
    """Return claims of a valid token of alice."""
    return {"sub": USER, "aud": EXPECTED_AUDIENCE, "iat": now_s, "exp": now_s + 7200, **other}


@cache
def _signed(expires_s: int, audience: str, subject: str) -> str:
    payload = claims(expires_s - 7200, aud=audience, sub=subject)
    return jwt.encode({"alg": "ES256", "kid": "right"}, payload, key())


@cache
def _signed_by_stranger(now_s: int) -> str:
    return jwt.encode({"alg": "RS256", "kid": "right"}, claims(now_s), _stranger())


def _part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def token(rng: random.Random, now_s: int) -> tuple[str, bool]:
    """Return a JWT, and whether it is valid. `now_s` is the broker's time, rounded so that signatures can be cached."""
    if rng.random() < ENTITLED_SHARE:
        return right_token(now_s), True
    header = {
        "alg": rng.choice(
            ("ES256", "none", "None", "HS256", "RS256", "ES512", "", 5, None, "EdDSA", "PS256")
        ),
        **rng.choice(
            (
                {"kid": "right"},
                {"kid": "x" * 1000},
                {"kid": {"a": 1}},
                {"kid": ["right"]},
                {"jku": "http://127.0.0.1:1/keys"},
                {"x5u": "http://127.0.0.1:1/cert"},
                {"jwk": {"kty": "oct", "k": "AAAA"}},
                {"crit": ["b64"], "b64": False},
                {"zip": "DEF"},
                {},
            )
        ),
    }
    payload = claims(
        now_s,
        **rng.choice(
            (
                {},
                {"exp": rng.choice((0, -1, 1e300, float("nan"), "soon", None, True, 2**70, [1]))},
                {"nbf": now_s + 10**6},
                {"sub": rng.choice(("", 5, None, "x" * 10_000, {"a": "b"}, "User:admin"))},
                {"aud": rng.choice(([], [EXPECTED_AUDIENCE] * 1000, 5, None, {"kafka": 1}))},
                {"scope": rng.choice((5, "x" * 5000, [[]]))},
            )
        ),
    )
    kind = rng.randrange(8)
    good = right_token(now_s)
    signature = good.rpartition(".")[2]
    if kind == 0:
        return f"{_part(header)}.{_part(payload)}.{signature}", False
    if kind == 1:
        return f"{_part(header)}.{_part(payload)}.", False
    if kind == 2:
        # A signature of zeros, which some libraries take for right (CVE-2022-21449).
        zeros = urlsafe_b64encode(bytes(64)).decode().rstrip("=")
        return f"{_part({'alg': 'ES256', 'kid': 'right'})}.{_part(payload)}.{zeros}", False
    if kind == 3:
        # The public key as the secret of an HMAC.
        unsigned = f"{_part({'alg': 'HS256', 'kid': 'right'})}.{_part(payload)}"
        mac = hmac.digest(json.dumps(key().as_dict(private=False)).encode(), unsigned.encode(), "sha256")
        return f"{unsigned}.{urlsafe_b64encode(mac).decode().rstrip('=')}", False
    if kind == 4:
        return rng.choice(
            (
                _signed(now_s - 36_000, EXPECTED_AUDIENCE, USER),
                _signed(now_s + 7200, "other", USER),
                _signed(now_s + 7200, EXPECTED_AUDIENCE, " "),
                _signed_by_stranger(now_s),
            )
        ), False
    if kind == 5:
        nested = "[" * rng.choice((10, 1000, 20_000))
        return (
            f"{urlsafe_b64encode(nested.encode()).decode().rstrip('=')}.{_part(payload)}.{signature}",
            False,
        )
    if kind == 6:
        return ".".join(
            rng.choice(("", "a", "====", _part(payload), "x" * 3000))
            for _ in range(rng.choice((1, 2, 3, 5, 9)))
        ), False
    changed = list(good)
    changed[rng.randrange(len(changed))] = rng.choice("Ab0-_.=~/")
    text = "".join(changed)
    return text, _read(text) == _read(
        good
    )  # the last letters of a part in base64 may differ and mean the same


def _read(text: str) -> list[bytes]:
    """Return the parts of a token as the most lenient reader takes them."""
    parts = (re.sub(r"[^A-Za-z0-9_-]", "", part) for part in text.split("."))
    return [urlsafe_b64decode(part[: len(part) - (len(part) % 4 == 1)] + "==") for part in parts]


def right_token(now_s: int) -> str:
    """Return a valid token of alice."""
    return _signed(now_s + 7200, EXPECTED_AUDIENCE, USER)


def bearer(rng: random.Random, now_s: int) -> tuple[bytes, bool]:
    """Return a message of OAUTHBEARER, and whether it is valid."""
    text, is_right = token(rng, now_s)
    gs2 = rng.choice(("n,,", "n,,", "n,,", "n,a=alice,", "n,a=bob,", "y,,", "n,", "", "p=x,,"))
    scheme = rng.choice(
        ("auth=Bearer ", "auth=Bearer ", "auth=bearer  ", "auth=Basic ", "auth=", "x=", "auth=Bearer")
    )
    pairs = rng.choice(("", "host=h\x01port=1\x01", "auth=Bearer x\x01", "a=\x01" * 500, "\x01", "=\x01"))
    end = rng.choice(("\x01\x01", "\x01\x01", "\x01\x01", "\x01", "", "\0"))
    body = f"{gs2}\x01{scheme}{text}"
    if end == "\x01\x01":
        body += f"\x01{pairs}\x01"
    else:
        body += end
    return body.encode(), is_right


def hour_s() -> int:
    """Return the time in s since 1970, rounded to an hour, so that signatures can be kept."""
    return int(time.time()) // 3600 * 3600
