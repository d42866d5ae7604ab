"""Final messages of SCRAM by a client that knows the password, so that nothing but their own fault can refuse them."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from dataclasses import replace

import pytest

from barnabas.security import scram
from barnabas.security.sasl.mechanism import LoginFailedError
from barnabas.security.sasl.scram import ScramExchange

from .test_sasl_mechanisms import SALT, Known, begun

CLIENT_NONCE = b"rOprNGfwEbeRWgbNEkqO"
MECHANISMS = pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])


def proved(mechanism: str, challenge: bytes, without_proof: bytes) -> bytes:
    """The final message that begins so, with the proof that is right for just that message."""
    kind = scram.MECHANISMS[mechanism]
    key = scram.client_key(kind, scram.salted_password(kind, "pencil", SALT, 4096))
    signed = b"n=user,r=" + CLIENT_NONCE + b"," + challenge + b"," + without_proof
    signature = hmac.digest(scram.stored_key(kind, key), signed, kind.algorithm)
    return without_proof + b",p=" + b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))


async def challenged(mechanism: str, gs2: bytes = b"n,,") -> tuple[ScramExchange, bytes, bytes]:
    """An exchange after its first message, the challenge, and the nonce in it."""
    server = begun(mechanism, credentials=Known())
    challenge = await server.step(gs2 + b"n=user,r=" + CLIENT_NONCE)
    return server, challenge, challenge.partition(b",")[0].removeprefix(b"r=")


@MECHANISMS
@pytest.mark.parametrize(
    "part",
    [
        slice(0, 1), slice(0, len(CLIENT_NONCE)), slice(0, len(CLIENT_NONCE) + 1), slice(0, -1),
        slice(1, None), slice(len(CLIENT_NONCE), None),
    ],
)  # fmt: skip
async def test_a_part_of_the_nonce_does_not_though_the_proof_is_right(mechanism, part):
    """CVE-2024-56128: the server's part is what makes an exchange one that was never seen before."""
    server, challenge, nonce = await challenged(mechanism)
    with pytest.raises(LoginFailedError, match="nonce of another exchange"):
        await server.step(proved(mechanism, challenge, b"c=biws,r=" + nonce[part]))
    assert server.identity is None


@MECHANISMS
@pytest.mark.parametrize("change", [lambda nonce: nonce + b"x", lambda nonce: b"x" + nonce, bytes.swapcase])
async def test_other_or_longer_nonce_fails_despite_a_right_proof(mechanism, change):
    server, challenge, nonce = await challenged(mechanism)
    with pytest.raises(LoginFailedError, match="nonce of another exchange"):
        await server.step(proved(mechanism, challenge, b"c=biws,r=" + change(nonce)))
    assert server.identity is None


@MECHANISMS
@pytest.mark.parametrize("binding", [b"y,,", b"n,a=user,", b"p=tls-unique,,", b""])
async def test_other_channel_binding_fails_despite_a_right_proof(mechanism, binding):
    server, challenge, nonce = await challenged(mechanism)
    encoded = b64encode(binding) or b"===="
    with pytest.raises(LoginFailedError):
        await server.step(proved(mechanism, challenge, b"c=" + encoded + b",r=" + nonce))
    assert server.identity is None


@MECHANISMS
@pytest.mark.parametrize("gs2", [b"n,,", b"n,a=user,"])
async def test_usual_channel_bindings_log_in(mechanism, gs2):
    for binding in {gs2, b"n,,"}:
        server, challenge, nonce = await challenged(mechanism, gs2)
        await server.step(proved(mechanism, challenge, b"c=" + b64encode(binding) + b",r=" + nonce))
        assert server.identity is not None
        assert server.identity.name == "user"


@MECHANISMS
@pytest.mark.parametrize(
    "change",
    [lambda proof: proof[:-1], lambda proof: proof[:1], lambda proof: proof + b"\0", lambda proof: proof * 2],
)
async def test_a_proof_of_another_length_does_not(mechanism, change):
    """Of two texts of which one is shorter, only the beginning would be compared."""
    server, challenge, nonce = await challenged(mechanism)
    bare, _, proof = proved(mechanism, challenge, b"c=biws,r=" + nonce).partition(b",p=")
    with pytest.raises(LoginFailedError, match="wrong password"):
        await server.step(bare + b",p=" + b64encode(change(b64decode(proof))))
    assert server.identity is None


async def test_a_user_who_does_not_exist_is_not_let_in_with_any_proof():
    server = begun(credentials=Known("somebody else"))
    challenge = await server.step(b"n,,n=user,r=" + CLIENT_NONCE)
    nonce = challenge.partition(b",")[0].removeprefix(b"r=")
    with pytest.raises(LoginFailedError, match="unknown user or token"):
        await server.step(proved("SCRAM-SHA-256", challenge, b"c=biws,r=" + nonce))
    assert server.identity is None


@MECHANISMS
async def test_a_token_whose_owner_is_no_user_lets_nobody_in(mechanism):
    class Owned(Known):
        def token(self, token_id):
            token = super().token("id1")
            return token and replace(token, owner="Group:all")

    server = begun(mechanism, credentials=Owned())
    first = b"n,,n=user,r=" + CLIENT_NONCE + b",tokenauth=true"
    challenge = await server.step(first)
    nonce = challenge.partition(b",")[0].removeprefix(b"r=")
    with pytest.raises(LoginFailedError, match="unknown user or token"):
        await server.step(proved(mechanism, challenge, b"c=biws,r=" + nonce))
