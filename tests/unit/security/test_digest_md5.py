"""DIGEST-MD5: the example of RFC 2831, and what a server must not get away with."""

import pytest

from barnabas.security.digest_md5 import DigestError, DigestServer, digest_md5, parse_directives

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
PROOF = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def begun(**changed):
    options = {
        "username": "chris", "password": "secret", "uri": "imap/elwood.innosoft.com", "nonce": "OA6MHXh6VqTrRk",
    }  # fmt: skip
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
    ("challenge", "reason"),
    [
        (b"", "offers no login"),
        (b'realm="r"', "no nonce"),
        (b'nonce="n",qop="auth-int,auth-conf"', "security layer"),
        (b"nonce", "malformed"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_challenge_that_cannot_be_answered(challenge, reason):
    with pytest.raises(DigestError, match=reason):
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


def server(users, realm="elwood.innosoft.com"):
    return DigestServer(users.get, realm=realm, uri="imap/elwood.innosoft.com", nonce="OA6MG9tEQGm2hh")


def test_the_server_of_the_rfcs_example():
    ours = server({"chris": "secret"})
    assert parse_directives(ours.answer(b"")) == parse_directives(CHALLENGE)
    assert ours.answer(begun().send(CHALLENGE)) == PROOF
    assert ours.username == "chris"
    with pytest.raises(DigestError, match="after the end of the login"):
        ours.answer(b"")


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (b"qop=auth,", ""), (b"nc=00000001,", "nc"), (b'realm="elwood.innosoft.com",', "realm"),
        (b'nonce="OA6MG9tEQGm2hh",', "nonce"), (b'username="chris",', "no username"),
    ],
)  # fmt: skip
def test_only_qop_may_be_omitted_from_an_answer(left_out, reason):
    ours = server({"chris": "secret"})
    ours.answer(b"")
    answer = begun().send(CHALLENGE)
    assert answer.count(left_out) == 1
    if not reason:
        assert ours.answer(answer.replace(left_out, b"")) == PROOF
        return
    with pytest.raises(DigestError, match=reason):
        ours.answer(answer.replace(left_out, b""))


@pytest.mark.parametrize(
    ("username", "password"),
    [('a"\\b', "p,q"), ("münchen", "pässword"), ("日本", "密码"), ("a", "é"), ("a", 'x"y')],
)
def test_client_and_server_agree_on_names_and_passwords(username, password):
    ours = server({username: password})
    messages = begun(username=username, password=password)
    proof = ours.answer(messages.send(ours.answer(b"")))
    assert ours.username == username
    with pytest.raises(StopIteration):
        messages.send(proof)


def test_a_wrong_password_and_an_unknown_user_are_refused_alike():
    reasons = set()
    for users in ({"chris": "other"}, {"frida": "secret"}, {"chris": ""}, {}):
        ours = server(users)
        ours.answer(b"")
        with pytest.raises(DigestError) as refused:
            ours.answer(begun().send(CHALLENGE))
        assert ours.username is None
        reasons.add(str(refused.value))
    assert reasons == {"the user or the password is wrong"}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'nonce="OA6MG9tEQGm2hh"', b'nonce="replayed"', "nonce"),
        (b"nc=00000001", b"nc=00000002", "nc"),
        (b"qop=auth,", b"qop=auth-conf,", "qop"),
        (b'realm="elwood.innosoft.com"', b'realm="elsewhere"', "realm"),
        (b"imap/elwood", b"smtp/elwood", "digest-uri"),
        (b'username="chris"', b'username=""', "no username"),
        (b"charset=utf-8", b'authzid="admin"', "another user"),
        (b"response=d388", b"response=d389", "password is wrong"),
        (b"response=d388dad90d4bbd760a152321f2143af7", b'response="\xc3\xa9"', "password is wrong"),
        (b"response=d388dad90d4bbd760a152321f2143af7", b"nothing", "malformed"),
    ],
)
def test_an_answer_that_does_not_fit_the_challenge_is_refused(old, new, reason):
    ours = server({"chris": "secret", "admin": "x"})
    ours.answer(b"")
    answer = begun().send(CHALLENGE)
    assert old in answer
    with pytest.raises(DigestError, match=reason):
        ours.answer(answer.replace(old, new))
    assert ours.username is None


def test_a_login_that_begins_with_an_answer_is_refused():
    with pytest.raises(DigestError, match="begins with an empty message"):
        server({"chris": "secret"}).answer(begun().send(CHALLENGE))
