"""DIGEST-MD5: the example of RFC 2831, and what a server must not get away with."""

import pytest

from barnabas.security.digest_md5 import DigestError, digest_md5, parse_directives

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def begun(**changed):
    options = {
        "username": "chris",
        "password": "secret",
        "uri": "imap/elwood.innosoft.com",
        "nonce": "OA6MHXh6VqTrRk",
    }
    options |= changed
    messages = digest_md5(options.pop("username"), options.pop("password"), **options)
    assert next(messages) == b""
    return messages


def test_the_example_of_the_rfc():
    messages = begun()
    answer = parse_directives(messages.send(CHALLENGE))
    assert answer == {
        "charset": "utf-8", "username": "chris", "realm": "elwood.innosoft.com", "nonce": "OA6MG9tEQGm2hh",
        "nc": "00000001", "cnonce": "OA6MHXh6VqTrRk", "digest-uri": "imap/elwood.innosoft.com", "qop": "auth",
        "response": "d388dad90d4bbd760a152321f2143af7",
    }  # fmt: skip
    with pytest.raises(StopIteration):
        messages.send(PROOF)


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b"", "offers no login"),
        (b'realm="r"', "no nonce"),
        (b'nonce="n",qop="auth-int,auth-conf"', "security layer"),
        (b"nonce", "malformed"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_challenge_that_cannot_be_answered(challenge, said):
    with pytest.raises(DigestError, match=said):
        begun().send(challenge)


@pytest.mark.parametrize("proof", [b"", b"rspauth=" + b"0" * 32, b'rspauth="\xc3\xa9"', PROOF[:-1]])
def test_a_server_that_does_not_know_the_password_is_found_out(proof):
    messages = begun()
    messages.send(CHALLENGE)
    with pytest.raises(DigestError, match="does not know"):
        messages.send(proof)


def test_names_are_quoted():
    answer = begun(username='a"\\b').send(CHALLENGE)
    assert b'username="a\\"\\\\b"' in answer
    assert parse_directives(answer)["username"] == 'a"\\b'
