"""Commands that ask a schema registry: subjects, versions, compatibility levels, modes.

The rule: only the HTTP API documented by Confluent is used, so that any registry will do; a refusal is a line with the
registry's own text.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from barnabas.commands.completing import subject_names
from barnabas.commands.connection import NAMES, Connecting, asking_options, properties_of
from barnabas.commands.errors import CommandError
from barnabas.commands.output import Output, Table
from barnabas.commands.schemas import DEFAULT_URL, registry_of, registry_option, schema_of_file
from barnabas.commands.session import confirm, destructive

if TYPE_CHECKING:
    from barnabas.registry.client import RegistryClient

LEVELS = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")
_GONE_ALREADY = (40404, 40406)
"""Codes for a subject and a version that were deleted, but not for good."""

SUBJECTS = Table("subjects", {"subject": "subject"})
SCHEMA = Table(
    "schema",
    {
        "subject": "subject; null with --id",
        "version": "number of the version; null with --id",
        "id": "id of the schema",
        "type": "AVRO, JSON or PROTOBUF",
        "references": "schemas that it refers to: name, subject and version",
        "schema": "its text",
    },
    is_single=True,
)
REGISTERED = Table(
    "registered", {"subject": "subject", "id": "id of the schema", "version": "its version"}, is_single=True
)
CHECKED = Table(
    "compatibility",
    {
        "subject": "subject",
        "version": "the version, or all that the level names",
        "is_compatible": "true if the schema may follow",
        "messages": "incompatibilities",
    },
    is_single=True,
)
DIFFERENCE = Table("difference", {"subject": "subject", "lines": "lines of a unified diff"}, is_single=True)
LEVEL = Table("level", {"subject": "subject; null for all", "level": "compatibility level"}, is_single=True)
MODE = Table("mode", {"subject": "subject; null for all", "mode": "mode of the subject"}, is_single=True)
DELETED = Table("deleted", {"subject": "subject", "versions": "numbers of deleted versions"}, is_single=True)


class Asked(NamedTuple):
    """A registry, and where results go."""

    client: RegistryClient
    output: Output

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request. Raises CommandError with the registry's message."""
        from barnabas.registry.errors import RegistryError

        try:
            return await self.client.ask(method, path, body)
        except RegistryError as error:
            hint = "; `barnabas registry subjects` shows what there is" if error.code == 40401 else ""
            raise CommandError(f"{error}{hint}") from error


def _asking(
    *tables: Table,
) -> Callable[[Callable[..., Awaitable[int | None]]], Callable[..., int]]:
    """Make a command of `async def work(asked, **options)`; its result is the exit code, None for that of its rows."""

    def decorate(work: Callable[..., Awaitable[int | None]]) -> Callable[..., int]:
        @functools.wraps(work)
        def run(**options: Any) -> int:
            import trio

            from barnabas.client import ClientSettings

            shared_options = {name: options.pop(name) for name in NAMES if name in options}
            properties, typed = properties_of(dict.fromkeys(NAMES) | shared_options)
            connecting = Connecting([], ClientSettings(), properties, typed)
            url = options.pop("registry")
            registry = registry_of(url, connecting) or registry_of(DEFAULT_URL, connecting)
            assert registry is not None
            output = Output(as_json=shared_options["as_json"])

            async def asked() -> int:
                code = await work(Asked(registry.client(), output), **options)
                finished = output.finish()
                return finished if code is None else code

            return trio.run(asked)

        run.tables = tables  # type: ignore[attr-defined]  # for the reference
        return asking_options(registry_option(run))

    return decorate


def _path(*parts: object, **query: object) -> str:
    """Return a path, with the flags of a query that are set."""
    text = "".join(f"/{quote(str(part), safe='')}" for part in parts)
    pairs = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items() if value)
    return f"{text}?{pairs}" if pairs else text


_SUBJECT = click.argument("subject", shell_complete=subject_names)
_FILE = click.argument("file", metavar="FILE")
_REFERENCES = click.option(
    "--reference", "references", metavar="NAME=SUBJECT:VERSION", multiple=True,
    help="A schema that it refers to, by the name in its text; may be repeated.",
)  # fmt: skip
_NORMALIZE = click.option("--normalize", is_flag=True, help="Compare schemas in their normal form.")


@click.command("subjects")
@click.argument("prefix", default="")
@click.option("--deleted", is_flag=True, help="Also deleted subjects that are not deleted permanently.")
@_asking(SUBJECTS)
async def subjects(asked: Asked, prefix: str, deleted: bool) -> None:
    """List subjects: all, or those that begin with PREFIX."""
    names = await asked.ask("GET", _path("subjects", subjectPrefix=prefix, deleted="true" if deleted else ""))
    asked.output.show(SUBJECTS, [{"subject": name} for name in names])


@click.command("get")
@click.argument("subject", required=False, shell_complete=subject_names)
@click.argument("version", default="latest")
@click.option("--id", "schema_id", type=click.IntRange(1), help="The schema with this id, of any subject.")
@click.option("--raw", is_flag=True, help="Print the schema's text only.")
@_asking(SCHEMA)
async def get(asked: Asked, subject: str | None, version: str, schema_id: int | None, raw: bool) -> None:
    """Show a version of a subject, the newest unless VERSION is given, or the schema with an id."""
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give a SUBJECT, or --id")
    if schema_id is None:
        schema = await asked.ask("GET", _path("subjects", subject, "versions", version))
    else:
        schema = {**await asked.ask("GET", _path("schemas", "ids", schema_id)), "id": schema_id}
    if raw and not asked.output.as_json:
        click.echo(schema["schema"])
        return
    asked.output.show(SCHEMA, [_row(schema)])


def _row(schema: dict[str, Any]) -> dict[str, Any]:
    references = [
        f"{entry['name']}={entry['subject']}:{entry['version']}" for entry in schema.get("references") or ()
    ]
    row = {name: schema.get(name) for name in ("subject", "version", "id", "schema")}
    return {**row, "type": schema.get("schemaType", "AVRO"), "references": references}


def _body(file: str, references: tuple[str, ...]) -> dict[str, Any]:
    """Return a schema as registries are sent it. Raises CommandError, click.UsageError."""
    body: dict[str, Any] = schema_of_file(file).plain()
    if references:
        body["references"] = list(map(_reference, references))
    return body


def _reference(text: str) -> dict[str, Any]:
    name, equals, rest = text.partition("=")
    subject, colon, version = rest.rpartition(":")
    if not (name and equals and subject and colon and version.isdecimal()):
        raise click.UsageError(f"--reference {text}: NAME=SUBJECT:VERSION is expected")
    return {"name": name, "subject": subject, "version": int(version)}


@click.command("register")
@_SUBJECT
@_FILE
@_REFERENCES
@_NORMALIZE
@_asking(REGISTERED)
async def register(
    asked: Asked, subject: str, file: str, references: tuple[str, ...], normalize: bool
) -> None:
    """Make the schema of FILE (.avsc, .json, .proto) the newest version of SUBJECT, unless a version has it already."""
    body, flag = _body(file, references), "true" if normalize else ""
    response = await asked.ask("POST", _path("subjects", subject, "versions", normalize=flag), body)
    version = await asked.ask("POST", _path("subjects", subject, normalize=flag), body)
    asked.output.show(
        REGISTERED, [{"subject": subject, "id": response["id"], "version": version.get("version")}]
    )


@click.command("check")
@_SUBJECT
@_FILE
@click.option(
    "--version",
    default="latest",
    show_default=True,
    help="The version to compare with; `all`: those that the level names.",
)
@_REFERENCES
@_NORMALIZE
@_asking(CHECKED)
async def check(
    asked: Asked, subject: str, file: str, version: str, references: tuple[str, ...], normalize: bool
) -> int:
    """Check whether the schema of FILE may follow in SUBJECT; the exit code is 1 if it may not."""
    where = ("compatibility", "subjects", subject, "versions", *(() if version == "all" else (version,)))
    path = _path(*where, verbose="true", normalize="true" if normalize else "")
    answer = await asked.ask("POST", path, _body(file, references))
    row = {"subject": subject, "version": version, "is_compatible": bool(answer["is_compatible"])}
    asked.output.show(CHECKED, [{**row, "messages": answer.get("messages") or []}])
    return 0 if answer["is_compatible"] else 1


@click.command("diff")
@_SUBJECT
@click.argument("before")
@click.argument("after", default="latest")
@_asking(DIFFERENCE)
async def diff(asked: Asked, subject: str, before: str, after: str) -> int:
    """Show the differences between two versions of SUBJECT; the exit code is 1 if there are any."""
    from difflib import unified_diff

    old, new = [
        _lines(await asked.ask("GET", _path("subjects", subject, "versions", version)))
        for version in (before, after)
    ]
    lines = list(unified_diff(old, new, f"{subject} {before}", f"{subject} {after}", lineterm=""))
    if asked.output.as_json:
        asked.output.show(DIFFERENCE, [{"subject": subject, "lines": lines}])
    else:
        asked.output.text(lines)
    return 1 if lines else 0


def _lines(schema: dict[str, Any]) -> list[str]:
    """Return the lines of a schema; JSON with one value a line, in the order that it has."""
    text: str = schema["schema"]
    if schema.get("schemaType", "AVRO") != "PROTOBUF":
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text.splitlines()


def _setting(table: Table, word: str, values: tuple[str, ...], summary: str) -> click.Command:
    """Return the command of a level or a mode; `word` is the registry's name of the value in requests."""

    name = table.name

    @click.command(name, help=summary)
    @click.argument("subject", required=False, shell_complete=subject_names)
    @click.option("--set", "value", type=click.Choice(values, case_sensitive=False), help="Change it.")
    @click.option(
        "--delete", "is_deleted", is_flag=True, help="Reset to the level of all subjects, or to the default."
    )
    @click.option("--force", is_flag=True, hidden=name != "mode", help="Even if the subject has versions.")
    @_asking(table)
    async def command(
        asked: Asked, subject: str | None, value: str | None, is_deleted: bool, force: bool
    ) -> None:
        kind = "mode" if name == "mode" else "config"
        where = (kind,) if subject is None else (kind, subject)
        if value is not None and is_deleted:
            raise click.UsageError("--set and --delete exclude each other")
        if value is not None:
            await asked.ask("PUT", _path(*where, force="true" if force else ""), {word: value.upper()})
        elif is_deleted:
            await asked.ask("DELETE", _path(*where))
        answer = await asked.ask("GET", _path(*where, defaultToGlobal="true" if subject else ""))
        asked.output.show(
            table, [{"subject": subject, name: answer.get("compatibilityLevel") or answer.get(word)}]
        )

    return command


@click.command("delete")
@_SUBJECT
@click.argument("version", required=False)
@click.option(
    "--permanent", is_flag=True, help="Delete permanently: its schema ids cannot be read afterwards."
)
@destructive
@_asking(DELETED)
async def delete(asked: Asked, subject: str, version: str | None, permanent: bool, yes: bool) -> None:
    """Delete a subject, or one version; without --permanent, its schemas can still be read by id."""
    what = f"subject {subject}" if version is None else f"version {version} of {subject}"
    confirm(f"delete {what}{' for good' if permanent else ''}", yes=yes)
    where = ("subjects", subject) if version is None else ("subjects", subject, "versions", version)
    deleted: Any = []
    try:
        deleted = await asked.ask("DELETE", _path(*where))
    except CommandError as error:
        if not permanent or getattr(error.__cause__, "code", 0) not in _GONE_ALREADY:
            raise
    if permanent:
        deleted = await asked.ask("DELETE", _path(*where, permanent="true"))
    versions = deleted if isinstance(deleted, list) else [deleted]
    asked.output.show(DELETED, [{"subject": subject, "versions": versions}])


ALL: dict[str, click.Command] = {
    command.name or "": command
    for command in (
        subjects, get, register, check, diff,
        _setting(LEVEL, "compatibility", LEVELS, "Show the compatibility level of SUBJECT or of all; or change it."),
        _setting(MODE, "mode", MODES, "Show the mode of SUBJECT or of all; or change it."),
        delete,
    )
}  # fmt: skip
