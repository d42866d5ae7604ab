"""Keys that sign tokens: when they are read again, and what is not taken for keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.network.jwks import UNKNOWN_KEY_SECONDS, Jwks, JwksError

KEYS = {"keys": [{"kid": "a"}]}
REFRESH_S = 3600.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a set of keys.json"
    path.write_text(json.dumps(KEYS))
    return path


def test_keys_are_reloaded_when_old_and_sooner_if_unknown(file: Path) -> None:
    keys = Jwks(file.as_uri(), REFRESH_S)
    assert keys.is_file
    assert keys.is_due(0.0, lacks_key=False), "nothing has been read yet"
    keys.read(1000.0)
    assert keys.keys == KEYS
    for lacks_key, seconds in ((False, REFRESH_S), (True, UNKNOWN_KEY_SECONDS)):
        assert not keys.is_due(1000.0 + seconds, lacks_key=lacks_key)
        assert keys.is_due(1000.1 + seconds, lacks_key=lacks_key)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"keys": {}}', "\xff"])
def test_keys_stay_when_a_reload_fails_and_retries_are_bounded(file: Path, text: str) -> None:
    keys = Jwks(file.as_uri(), REFRESH_S)
    keys.read(1000.0)
    file.write_text(text, encoding="latin-1")
    with pytest.raises(JwksError, match=r"a%20set"):
        keys.read(2000.0)
    assert keys.keys == KEYS
    assert not keys.is_due(2000.0 + UNKNOWN_KEY_SECONDS, lacks_key=True)
    file.unlink()
    with pytest.raises(JwksError, match="No such file"):
        keys.read(3000.0)


@pytest.mark.parametrize(
    "url", ["https://castle:hush@keys.example/jwks", "ftp://castle:hush@keys.example/jwks"]
)
def test_an_address_with_a_user_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(JwksError, match="no user") as error:
        Jwks(url, REFRESH_S)
    assert "hush" not in str(error.value)
