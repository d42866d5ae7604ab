"""Names of topics in the target of a mirror."""

from __future__ import annotations

import re

from barnabas.log.format.names import why_no_topic
from barnabas.wire.generated.index import RECORDS
from barnabas_pipeline.errors import UsageError
from barnabas_pipeline.jobs.choices import Choice

_FIELD = re.compile(r"\{[^{}]*\}")


def check_rename(pattern: str, choice: Choice, sources: int) -> None:
    """Check that a naming pattern gives each topic a distinct name. Raises UsageError."""
    fields = set(_FIELD.findall(pattern))
    unknown = fields - {"{source}", "{topic}"}
    if unknown or "{" in _FIELD.sub("", pattern) or "}" in _FIELD.sub("", pattern):
        raise UsageError(f"names are made of {{source}} and {{topic}}, not {pattern!r}")
    if "{topic}" not in fields and (choice.patterns or len(choice.names) > 1):
        raise UsageError(f"several topics cannot all be called {pattern!r}: it lacks {{topic}}")
    if sources > 1 and not fields:
        raise UsageError(f"the topics of several sources cannot all be called {pattern!r}")


def target_name(pattern: str, source: str, topic: str) -> str:
    """Return the name of a topic in the target. Raises UsageError."""
    name = pattern.replace("{source}", source).replace("{topic}", topic)
    why = why_no_topic(name)
    if why:
        raise UsageError(f"{topic} cannot be mirrored as {name!r}: {why}")
    if name in RECORDS:
        raise UsageError(f"{name} cannot be mirrored into: a cluster alone writes to its internal topics")
    return name
