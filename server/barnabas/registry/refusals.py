"""Refusals of a registry, with the status, code and text of Confluent's."""

from __future__ import annotations

from barnabas.registry import names
from barnabas.registry.errors import RegistryError

SCHEMA_NOT_FOUND = 40403
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


def subject_not_found(subject: str) -> RegistryError:
    """The subject does not exist, or all of its versions are deleted."""
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    """The subject does not have the version."""
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    """No schema has the id, or the subject does not have the schema."""
    return RegistryError(
        404, SCHEMA_NOT_FOUND, "Schema not found" if schema_id is None else f"Schema {schema_id} not found"
    )


def subject_deleted(subject: str) -> RegistryError:
    """The subject is deleted already."""
    return RegistryError(
        404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently"
    )


def subject_not_deleted(subject: str) -> RegistryError:
    """Only deleted subjects or versions can be removed permanently."""
    return RegistryError(
        404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted"
    )


def version_deleted(subject: str, version: int) -> RegistryError:
    """The version is deleted already."""
    text = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(404, 40406, text)


def version_not_deleted(subject: str, version: int) -> RegistryError:
    """Only deleted subjects or versions can be removed permanently."""
    text = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(404, 40407, text)


def no_level(subject: str) -> RegistryError:
    """The subject has no level of its own."""
    return RegistryError(
        404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
    )


def no_mode(subject: str) -> RegistryError:
    """The subject has no mode of its own."""
    return RegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: list[str]) -> RegistryError:
    """The schema breaks the subject's level of compatibility."""
    return RegistryError(
        409, 40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        f"[{', '.join(details)}]",
    )  # fmt: skip


def invalid_schema(text: str) -> RegistryError:
    """The schema is invalid."""
    return RegistryError(422, 42201, text)


def invalid_version(text: str) -> RegistryError:
    """Return the error for a version that is no valid number."""
    return RegistryError(
        422, 42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )  # fmt: skip


def invalid_level() -> RegistryError:
    """There is no such level."""
    return RegistryError(
        422, 42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )  # fmt: skip


def invalid_mode() -> RegistryError:
    """There is no such mode."""
    return RegistryError(
        422, 42204, f"Invalid mode. Valid values are {', '.join(MODES[:-1])} and {MODES[-1]}."
    )


def not_permitted(text: str) -> RegistryError:
    """The mode forbids it."""
    return RegistryError(422, 42205, text)


def wrong_mode(subject: str | None, what: str) -> RegistryError:
    """The mode of a subject, or with None the global one, forbids the request; `what` describes the mode in the message."""
    context, _ = names.split(subject or "")
    return not_permitted(f"Subject {subject} in context {names.join(context, '')} is {what} mode")


def referred_to(subject: str, version: int) -> RegistryError:
    """Other schemas refer to the version to be deleted."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(422, 42206, f"One or more references exist to the schema {key}.")


def other_id(schema_id: int) -> RegistryError:
    """Another schema has the id to be imported."""
    return RegistryError(422, 42207, f"Overwrite new schema with id {schema_id} is not permitted.")


def invalid_subject(subject: str) -> RegistryError:
    """No subject may be called so."""
    return RegistryError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def too_large() -> RegistryError:
    """The topic does not accept a record of this size."""
    return RegistryError(422, 42209, "Register operation failed because schema is too large")


def invalid_rules(text: str) -> RegistryError:
    """The rules of a schema are invalid."""
    return RegistryError(422, 42210, text)


def store_failed(text: str) -> RegistryError:
    """The topic that stores the registry could not be written."""
    return RegistryError(500, 50001, text)


def timed_out() -> RegistryError:
    """The topic was not written, or not read back, in time; whether the change took effect is unknown."""
    return RegistryError(500, 50002, "The operation timed out")
