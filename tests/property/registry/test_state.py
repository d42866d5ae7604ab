"""A registry and its records: whatever compaction leaves of them leads to the same registry."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from barnabas.registry.errors import RegistryError
from barnabas.registry.parsing import Parsing
from barnabas.registry.registering import Registering, SchemaRequest
from barnabas.registry.removing import Removing
from barnabas.registry.schemas import Schema
from barnabas.registry.setting import Setting
from barnabas.registry.state import State
from tests.support.inline import Inline
from tests.support.registries import Written

SUBJECTS = ["a", "b", ":.c:a"]
TEXTS = [json.dumps({"type": "object", "title": str(number)}) for number in range(4)]


def seen(state: State) -> Any:
    """All that a client can see."""
    return (
        {subject: list(versions.values()) for subject, versions in sorted(state.subjects.items())},
        {subject: state.next_id(subject) for subject in SUBJECTS if state.subjects.get(subject)},
        state.configs,
        state.modes,
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.sampled_from(SUBJECTS), st.sampled_from(TEXTS)),
        st.tuples(st.just("delete"), st.sampled_from(SUBJECTS), st.tuples(st.integers(1, 5), st.booleans())),
        st.tuples(st.just("remove"), st.sampled_from(SUBJECTS), st.booleans()),
        st.tuples(
            st.just("config"), st.sampled_from([*SUBJECTS, None]), st.sampled_from(["NONE", "FULL", None])
        ),
        st.tuples(
            st.just("mode"), st.sampled_from([*SUBJECTS, None]), st.sampled_from(["READWRITE", "READONLY"])
        ),
    ),
    max_size=12,
)


@given(steps)
async def test_compaction_changes_nothing(given_steps: list[Any]) -> None:
    store: Any = Written()
    registering, removing, setting = Registering(store, Parsing(Inline())), Removing(store), Setting(store)
    given_ids: dict[tuple[bool, str], int] = {}
    for what, subject, value in given_steps:
        try:
            if what == "register":
                registered = await registering.register(subject, SchemaRequest(Schema("JSON", value)))
                text = registered.schema.text
                place = subject.startswith(":"), text
                is_there = any(row.schema.text == text for row in _others(store.state, subject, registered))
                assert not is_there or given_ids[place] == registered.id
                assert all(
                    number != registered.id or key == place
                    for key, number in given_ids.items()
                    if key[0] == place[0]
                )
                given_ids[place] = registered.id
            elif what == "delete":
                await removing.version(subject, value[0], permanent=value[1])
            elif what == "remove":
                await removing.subject(subject, permanent=value)
            elif what == "config" and value is None:
                await setting.delete_config(subject)
            elif what == "config":
                await setting.put_config(subject, {"compatibility": value})
            else:
                await setting.put_mode(subject, {"mode": value}, force=False)
        except RegistryError as error:
            if error.status >= 500:
                raise
    compacted = State()
    last = {key: number for number, (key, _) in enumerate(store.records)}
    for number, (key, data) in enumerate(store.records):
        if last[key] == number:
            compacted.apply(key, data)
    assert seen(compacted)[0] == seen(store.state)[0]
    assert seen(compacted)[2:] == seen(store.state)[2:]
    again = State()
    for key, data in store.records:
        again.apply(key, data)
    assert seen(again) == seen(store.state)


def _others(state: State, subject: str, own: Any) -> list[Any]:
    """Versions in the same context, without the one that was found."""
    is_elsewhere = subject.startswith(":")
    return [
        version
        for name, versions in state.subjects.items()
        for version in versions.values()
        if name.startswith(":") == is_elsewhere and version != own
    ]
