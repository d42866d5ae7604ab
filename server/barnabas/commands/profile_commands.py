"""`barnabas profiles`: clusters under names chosen by the user: list, create, use, edit.

The rule: the file belongs to the user: its content and comments are kept; a change is written completely, or not at all.
A password is never an option, and is prompted for if `create` has a user without one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from typing import Any

import click

from barnabas.commands import profiles
from barnabas.commands.connection import NAMES, connection_options, properties_of, with_ports
from barnabas.commands.errors import CommandError
from barnabas.commands.output import Output, Table
from barnabas.commands.schemas import registry_option
from barnabas.system.files import sync

PROFILES = Table(
    "profiles",
    {
        "name": "name",
        "is_default": "true for the one that is used without --profile",
        "bootstrap": "addresses",
        "protocol": "security protocol",
        "user": "user that logs in",
        "registry": "address of the schema registry",
    },
)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_DEFAULT_LINE = re.compile(r"(?m)^[ \t]*default[ \t]*=.*$")
_FIRST_TABLE = re.compile(r"(?m)^[ \t]*\[")


@click.group("profiles")
def COMMAND() -> None:  # noqa: N802
    """Name clusters with their logins, for --profile and BARNABAS_PROFILE."""


def _shown(as_json: bool) -> int:
    from barnabas.registry.addresses import without_secret

    every, default = profiles.every()
    output = Output(as_json=as_json)
    rows: list[dict[str, Any]] = []
    for name, settings in sorted(every.items()):
        url = settings.get("schema.registry.url")
        rows.append(
            {
                "name": name,
                "is_default": name == default,
                "bootstrap": settings.get("bootstrap.servers"),
                "protocol": settings.get("security.protocol", "PLAINTEXT"),
                "user": settings.get("sasl.username"),
                "registry": without_secret(url) if url else None,
            }
        )
    output.show(PROFILES, rows)
    if not rows and not as_json:
        output.note(f"`barnabas profiles create NAME --bootstrap HOST:PORT` makes one, in {profiles.path()}")
    return output.finish()


@COMMAND.command("list")
@_JSON
def list_profiles(as_json: bool) -> int:
    """List profiles; none of their passwords is shown."""
    return _shown(as_json)


list_profiles.callback.tables = (PROFILES,)  # type: ignore[union-attr]  # for the reference


@COMMAND.command("create")
@click.argument("name")
@click.option("--default", "is_default", is_flag=True, help="Make it the default, used without --profile.")
@registry_option
@connection_options
def create(name: str, is_default: bool, registry: str | None, **options: Any) -> int:
    """Make a profile of these options; a password is asked for, or named by --password-file."""
    if not _NAME.fullmatch(name) or name == profiles.DEFAULT:
        raise click.UsageError(f"{name!r} cannot be a profile: letters, digits, - and _ are expected")
    every, _ = profiles.every()
    if name in every:
        raise CommandError(f"there is a profile {name!r}; `barnabas profiles edit` changes it")
    chosen = {**dict.fromkeys(NAMES), **options}
    bootstrap = chosen["bootstrap"]
    settings, _ = properties_of(chosen, uses_default=False)
    if bootstrap:
        _check_addresses(bootstrap)
        settings = {"bootstrap.servers": bootstrap, **settings}
    if registry:
        settings["schema.registry.url"] = registry
    _ask_password(settings)
    lines = [f"[{name}]", *(f"{key} = {_quoted(value)}" for key, value in settings.items())]
    text = _text()
    text += "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    text += "\n".join(lines) + "\n"
    _write(_with_default(text, name) if is_default or not every else text)
    print(f"profile {name} is in {profiles.path()}", file=sys.stderr)
    return 0


def _check_addresses(bootstrap: str) -> None:
    """Raise click.UsageError for invalid addresses."""
    from barnabas.client import parse_bootstrap

    try:
        parse_bootstrap(with_ports(bootstrap))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _quoted(text: str) -> str:
    """Return a text as a string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _ask_password(settings: dict[str, str]) -> None:
    """Prompt for a user's missing password, at a terminal; an empty one is prompted for at each use."""
    mechanism = settings.get("sasl.mechanism", "").upper()
    has_one = settings.get("sasl.password") or settings.get("sasl.password.file")
    if not (mechanism == "PLAIN" or mechanism.startswith("SCRAM")) or has_one or not sys.stdin.isatty():
        return
    user = settings.get("sasl.username", "")
    typed = click.prompt(
        f"Password of {user} (empty: ask each time)",
        hide_input=True,
        default="",
        show_default=False,
        err=True,
    )
    if typed:
        settings["sasl.password"] = typed


@COMMAND.command("use")
@click.argument("name", shell_complete=profiles.complete)
def use(name: str) -> int:
    """Make a profile the default, used without --profile."""
    every, _ = profiles.every()
    if name not in every:
        names = ", ".join(sorted(every)) or "none"
        raise CommandError(f"{profiles.path()} has no profile {name!r}; it has {names}")
    _write(_with_default(_text(), name))
    return 0


@COMMAND.command("edit")
def edit() -> int:
    """Open the file in the editor that EDITOR names, and check it afterwards."""
    path = profiles.path()
    before = _text()
    edited = click.edit(before or profiles.EXAMPLE, extension=".toml")
    if edited is None or edited == before:
        raise CommandError("nothing was changed")
    profiles.parsed(edited, path)
    _write(edited)
    return 0


def _text() -> str:
    """Return the content of the file, empty if it does not exist. Raises CommandError."""
    path = profiles.path()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', error)}") from None


def _with_default(text: str, name: str) -> str:
    """Return the file with another default, which stands before the first table."""
    line = f"{profiles.DEFAULT} = {_quoted(name)}"
    first = _FIRST_TABLE.search(text)
    head, rest = (text, "") if first is None else (text[: first.start()], text[first.start() :])
    if _DEFAULT_LINE.search(head):
        return _DEFAULT_LINE.sub(lambda _: line, head, count=1) + rest
    return f"{line}\n\n{head}{rest}" if not head.strip() else f"{head.rstrip()}\n{line}\n\n{rest}"


def _write(text: str) -> None:
    """Write the file, readable by its owner only, after checking that it can be parsed. Raises CommandError."""
    path = profiles.path()
    profiles.parsed(text, path)
    target = os.path.realpath(path)  # it may be a link into a place of the user's
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        number, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".profiles-")
        try:
            with open(number, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                sync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
