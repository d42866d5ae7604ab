"""A mapping in layers holds what a dict holds after the same changes, and what it was copied from stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cluster.metadata import layered_map
from barnabas.cluster.metadata.layered_map import LayeredMap, copied

KEYS = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers()),
        st.tuples(st.just("delete"), KEYS, st.just(0)),
        st.tuples(st.just("copy"), KEYS, st.just(0)),
    ),
    max_size=60,
)


@pytest.fixture(autouse=True, scope="module")
def _small() -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layered_map, "LAYERED_SIZE_MIN", 4)
        patched.setattr(layered_map, "CHANGES_MAX", 3)
        yield


@given(size=st.integers(0, 10), steps=STEPS)
def test_it_holds_what_a_dict_holds(size: int, steps: list[tuple[str, int, int]]) -> None:
    expected = {key: key for key in range(size)}
    mapping = copied(dict(expected))
    before: list[tuple[object, dict[int, int]]] = []
    for what, key, value in steps:
        if what == "set":
            mapping[key] = expected[key] = value
        elif what == "copy":
            before.append((mapping, dict(expected)))
            mapping = copied(mapping)
        elif key in expected:
            assert mapping.pop(key) == expected.pop(key)
        else:
            with pytest.raises(KeyError):
                del mapping[key]
    for layered, plain in [*before, (mapping, expected)]:
        assert layered == plain
        assert isinstance(layered, dict | LayeredMap)
        assert len(layered) == len(plain)
        assert sorted(layered) == sorted(plain)
        assert sorted(layered.items()) == sorted(plain.items())
        assert sorted(layered.values()) == sorted(plain.values())
        for key in range(14):
            assert (key in layered) == (key in plain)
            assert layered.get(key) == plain.get(key)
            assert layered.get(key, -1) == plain.get(key, -1)
            if key not in plain:
                with pytest.raises(KeyError):
                    layered[key]


def test_order_is_that_of_first_insertion() -> None:
    mapping = LayeredMap(dict.fromkeys("abcde", 1), {}, 5)
    mapping["f"] = 1
    mapping["b"] = 2
    del mapping["c"]
    assert list(mapping.items()) == [("a", 1), ("b", 2), ("d", 1), ("e", 1), ("f", 1)]
