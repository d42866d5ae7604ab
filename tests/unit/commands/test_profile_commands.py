"""`barnabas profiles`, and completion of names: what is written, kept, offered, and refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli import main
from barnabas.commands import profiles
from barnabas.testing import KafkaBroker

from .conftest import Commands


def written(text: str) -> Path:
    path = Path(profiles.path())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def profile_rows(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    import json

    capsys.readouterr()
    assert main(["profiles", "list", "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["profiles"])


def test_profiles_are_created_used_and_listed(
    broker: KafkaBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profiles", "list"]) == 0
    assert "`barnabas profiles create NAME --bootstrap HOST:PORT` makes one" in capsys.readouterr().err
    assert main(["profiles", "create", "local", "-b", broker.bootstrap]) == 0
    secured = ["--user", 'a"n\\n ä', "--ca", "/x/ca.pem", "--registry", "https://u:p@registry:8081"]
    assert main(["profiles", "create", "prod", "-b", "k1,k2:9093", *secured, "-X", "client.id=me"]) == 0
    assert Path(profiles.path()).stat().st_mode & 0o777 == 0o600
    first, second = profile_rows(capsys)
    assert first == {
        "name": "local", "is_default": True, "bootstrap": broker.bootstrap, "protocol": "PLAINTEXT", "user": None,
        "registry": None,
    }  # fmt: skip
    assert (second["user"], second["protocol"], second["is_default"]) == ('a"n\\n ä', "SASL_SSL", False)
    assert second["registry"] == "https://registry:8081"
    assert profiles.read("prod")["client.id"] == "me"
    assert main(["topics", "list"]) == 0
    assert main(["profiles", "use", "prod"]) == 0
    assert [row["is_default"] for row in profile_rows(capsys)] == [False, True]


def test_use_keeps_comments_and_all_else_of_the_file() -> None:
    text = '# mine\n[a]   # first\nclient.id = "x"\ndefault = "not this one"\n\n[b]\n'
    path = written(text)
    assert main(["profiles", "use", "b"]) == 0
    assert path.read_text() == '# mine\ndefault = "b"\n\n' + text.removeprefix("# mine\n")
    assert main(["profiles", "use", "a"]) == 0
    assert path.read_text() == '# mine\ndefault = "a"\n\n' + text.removeprefix("# mine\n")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["use", "nothing"], 1, "has no profile 'nothing'; it has a"),
        (["create", "a"], 1, "there is a profile 'a'; `barnabas profiles edit` changes it"),
        (["create", "a.b"], 2, "cannot be a profile"),
        (["create", "default"], 2, "cannot be a profile"),
        (["edit"], 1, "nothing was changed"),
    ],
)
def test_change_that_cannot_be_made_leaves_the_file(
    arguments: list[str],
    code: int,
    text: str,
    capsys: pytest.CaptureFixture[str],
    set_environment: Callable[..., None],
) -> None:
    path = written('[a]\nclient.id = "x"\n')
    set_environment(EDITOR="true")
    assert main(["profiles", *arguments]) == code
    assert text in capsys.readouterr().err
    assert path.read_text() == '[a]\nclient.id = "x"\n'


@pytest.mark.parametrize(("edited", "code"), [('[b]\nclient.id = "y"\n', 0), ("[b\n", 1)])
def test_edited_file_is_checked_before_it_is_kept(
    edited: str,
    code: int,
    set_environment: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = written("[a]\n")
    (tmp_path / "edited").write_text(edited)
    set_environment(EDITOR=f"cp {tmp_path / 'edited'}")
    assert main(["profiles", "edit"]) == code
    assert path.read_text() == ("[a]\n" if code else edited)
    assert "Traceback" not in capsys.readouterr().err


# --- completion ----------------------------------------------------------------------------------------------------


@pytest.fixture
def complete(
    set_environment: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[[str, str], list[str]]:
    """Return what a shell is offered for the last word of a line."""

    def offered(line: str, shell: str = "bash") -> list[str]:
        words = line.split(" ")
        last = {"COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}
        set_environment(
            _BARNABAS_COMPLETE=f"{shell}_complete", COMP_WORDS=line, XDG_CACHE_HOME=str(tmp_path), **last
        )
        try:
            assert main([]) == 0
        finally:
            set_environment(_BARNABAS_COMPLETE=None)
        output = capsys.readouterr()
        assert output.err == ""
        return [
            name for name in output.out.replace("plain,", "plain\n").split("\n") if name not in ("plain", "")
        ]

    return offered


def test_topics_groups_and_profiles_are_offered(
    run: Commands, complete: Callable[..., list[str]], broker: KafkaBroker
) -> None:
    run("topics", "create", "offered-a", "offered-b")
    run("produce", "offered-a", "x")
    run("consume", "offered-a", "-g", "offered-group", "-o", "beginning", "-n", "1", "-q")
    at = f"-b {broker.bootstrap}"
    assert complete(f"barnabas topics describe {at} offered-") == ["offered-a", "offered-b"]
    assert complete(f"barnabas topics describe {at} offered-a offered-") == ["offered-b"]
    assert complete(f"barnabas consume {at} offered-") == ["offered-a", "offered-b"]
    assert complete(f"barnabas configs describe {at} topic offered-") == ["offered-a", "offered-b"]
    assert complete(f"barnabas groups describe {at} offered-") == ["offered-group"]
    assert complete(f"barnabas consume {at} offered-a --group offered-") == ["offered-group"]
    written("[local]\n")
    assert complete("barnabas profiles use l") == ["local"]


def test_names_are_kept_for_some_seconds_and_for_their_owner(
    run: Commands, complete: Callable[..., list[str]], broker: KafkaBroker, tmp_path: Path
) -> None:
    run("topics", "create", "kept-a")
    line = f"barnabas topics describe -b {broker.bootstrap} kept-"
    assert complete(line) == ["kept-a"]
    run("topics", "create", "kept-b")
    assert complete(line) == ["kept-a"]
    (kept,) = (tmp_path / "barnabas" / "completion").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    os.utime(kept, (1, 1))
    assert complete(line) == ["kept-a", "kept-b"]


@pytest.mark.parametrize(
    "line",
    [
        "barnabas topics describe -b 127.0.0.1:1 x",
        "barnabas topics describe -b http://x x",
        "barnabas topics describe --user ann x",
        "barnabas topics describe --profile nothing x",
        "barnabas groups describe --ca /nothing x",
        "barnabas registry get --registry http://127.0.0.1:1 x",
        "barnabas configs describe broker x",
    ],
)
def test_completion_says_nothing_where_something_is_wrong(
    line: str, complete: Callable[..., list[str]]
) -> None:
    assert complete(line) == []
