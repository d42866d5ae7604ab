"""The file with settings by topic: what wins, what is refused, and where that is said to be wrong."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from barnabas_pipeline.commands.topics import Settings, names_in, options_by_name
from barnabas_pipeline.errors import UsageError


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    for name in ("schema", "format", "table", "partition-by", "event-time", "from-offsets", "record"):
        options.add_argument(f"--{name}", default="of the command line")
    options.add_argument("--tombstones", choices=("dead", "keep"), default="dead")
    options.add_argument("--keep-snapshots", type=int)
    options.add_argument("--lateness", type=float, default=0)
    options.add_argument("--evolve", action="store_true")
    return options


def read(tmp_path: Path, text: str, name: str = "topics.yaml") -> Settings:
    path = tmp_path / name
    path.write_text(text)
    return Settings(str(path), options_by_name(parser()))


YAML = r"""
defaults: {format: avro, keep-snapshots: 50}
topics:
  orders:
    event-time: at
    partition-by: day(at)
    evolve: true
    from-offsets: {0: 100, 1: -2}
  logs.web: {format: json}
  plain:
patterns:
  'logs\..*': {format: string, tombstones: keep, lateness: 2}
  '.*\.web': {format: raw, table: a.b}
"""
TOML = r"""
[defaults]
format = "avro"
keep-snapshots = 50
[topics.orders]
event-time = "at"
partition-by = "day(at)"
evolve = true
from-offsets = {0 = 100, 1 = -2}
[topics."logs.web"]
format = "json"
[topics.plain]
[patterns.'logs\..*']
format = "string"
tombstones = "keep"
lateness = 2
[patterns.'.*\.web']
format = "raw"
table = "a.b"
"""


@pytest.mark.parametrize(("text", "name"), [(YAML, "t.yaml"), (TOML, "t.toml")])
def test_the_more_special_setting_wins(tmp_path: Path, text: str, name: str) -> None:
    settings = read(tmp_path, text, name)
    assert settings.names == ("orders", "logs.web", "plain")
    assert settings.patterns == (r"logs\..*", r".*\.web")
    args = parser().parse_args(["--format", "json", "--record", "r"])
    args.topic = ["a", "b"]
    orders, web, db, shop, other = (
        settings.of(topic, args) for topic in ("orders", "logs.web", "logs.db", "shop.web", "other")
    )
    assert (orders.topic, orders.format, orders.event_time, orders.partition_by, orders.evolve) == (
        "orders", "avro", "at", "day(at)", True,
    )  # fmt: skip
    assert (orders.from_offsets, orders.keep_snapshots, orders.record) == ('{"0": 100, "1": -2}', 50, "r")
    assert (web.format, web.tombstones, web.lateness) == ("json", "keep", 2.0), "the topic, then the pattern"
    assert (db.format, db.table) == ("string", "of the command line")
    assert (shop.format, shop.table) == ("raw", "a.b")
    assert (other.format, other.evolve) == ("avro", False)
    assert args.topic == ["a", "b"], "the options of the command are as they were"


def test_settings_without_an_option_are_skipped(tmp_path: Path) -> None:
    settings = read(tmp_path, YAML)
    args = settings.of("orders", argparse.Namespace(topic="x", format="json"))
    assert vars(args) == {"topic": "orders", "format": "avro"}


def test_files_are_found_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "orders.avsc").write_text("{}")
    settings = read(tmp_path, "topics: {orders: {schema: orders.avsc}, other: {schema: logins}}")
    args = parser().parse_args([])
    assert settings.of("orders", args).schema == str(tmp_path / "orders.avsc")
    assert settings.of("other", args).schema == "logins"


def test_list_of_names_has_no_settings(tmp_path: Path) -> None:
    assert read(tmp_path, "topics: [a, b]").names == ("a", "b")
    assert read(tmp_path, "").names == ()
    assert Settings(None, {}).patterns == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("topics:\n  orders:\n    tombstones: maybe", "line 3: topics.orders.tombstones 'maybe' is none of dead, keep"),
        ("topics:\n  orders: {keep-snapshots: many}", "line 2: topics.orders.keep-snapshots 'many' is no int"),
        ("topics:\n  orders: {evolve: 1}", "line 2: topics.orders.evolve 1 is neither true nor false"),
        ("topics:\n  orders: {format: [a]}", "line 2: topics.orders.format ['a'] is no text or number"),
        ("topics:\n  orders: {bootstrap: x}", "line 2: topics.orders.bootstrap is no setting of a topic: schema, "),
        ("topics:\n  'a b': {}", "line 2: topics.a b is not the name of a topic"),
        ("patterns:\n  'a(': {}", "line 2: patterns.a( is no regular expression"),
        ("topics:\n  orders: json", "line 2: topics.orders has settings, such as"),
        ("topics: 3", "line 1: topics has a mapping"),
        ("topic: {a: {}}", "line 1: topic is none of defaults, topics, patterns"),
        ("topics:\n  a: {}\n  a: {}", "line 3: a stands here twice"),
        ("[1, 2]", "has defaults, topics and patterns, not list"),
        ("topics: {", "line 1: "),
    ],
)  # fmt: skip
def test_mistakes_name_the_file_the_line_and_the_key(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "topics.yaml"))
    assert reason in str(caught.value)


def test_mistakes_in_toml_name_the_key(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"t\.toml: topics\.a\.tombstones 'x' is none of"):
        read(tmp_path, '[topics.a]\ntombstones = "x"', "t.toml")
    with pytest.raises(UsageError, match=r"t\.toml: Invalid value .*line 2"):
        read(tmp_path, "[topics]\na = x\n", "t.toml")
    with pytest.raises(UsageError, match="No such file"):
        Settings(str(tmp_path / "none.yaml"), {})


def test_topics_are_names_separated_by_commas() -> None:
    assert names_in(["a,b", "c", "a"]) == ["a", "b", "c"]
    with pytest.raises(
        UsageError, match=r"'a.\*' is not the name of a topic: .* --topic-pattern takes a pattern"
    ):
        names_in(["a.*"])
    with pytest.raises(UsageError, match="is not the name of a topic"):
        names_in(["a,,b"])
