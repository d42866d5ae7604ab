"""Values of settings: what is taken, what is refused with which words, and how values are printed."""

import pytest

from barnabas.config import tables
from barnabas.config.setting import Setting, SettingError


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.partitions", " 07 ", 7),
        ("auto.create.topics.enable", "TRUE ", True),
        ("log.cleaner.io.buffer.load.factor", "1e-1", 0.1),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("log.cleanup.policy", "compact , delete", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("log.cleanup.policy", "delete,delete", ("delete",)),
        ("group.consumer.migration.policy", "Upgrade", "Upgrade"),
        ("log.retention.bytes", "-1", -1),
        ("offsets.topic.replication.factor", "32767", 32767),
    ],
)
def test_a_good_value_is_typed(name, text, value):
    assert tables.setting(name).parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num.partitions", "0", "num.partitions=0: a whole number from 1 on expected"),
        ("num.partitions", "1_0", "num.partitions=1_0: a whole number from 1 on expected"),
        ("num.partitions", "", "num.partitions=: a whole number from 1 on expected"),
        ("num.partitions", "٣", "num.partitions=٣: a whole number from 1 on expected"),
        ("num.partitions", "2147483648", "a whole number from -2147483648 to 2147483647 expected"),
        ("offsets.topic.replication.factor", "32768", "from -32768 to 32767"),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable=yes: true or false expected"),
        ("compression.gzip.level", "0", "a whole number from 1 to 9, or -1 expected"),
        ("compression.type", "brotli", "one of uncompressed, zstd, lz4, snappy, gzip, producer expected"),
        ("log.cleanup.policy", "delete,,compact", "values with commas between them expected"),
        ("log.cleanup.policy", "keep", "some of compact, delete expected"),
        ("log.cleaner.min.cleanable.ratio", "nan", "a number from 0 to 1 expected"),
        (
            "group.consumer.migration.policy",
            "sideways",
            "one of disabled, downgrade, upgrade, bidirectional expected",
        ),
        ("remote.log.storage.manager.class.name", " ", "text expected"),
    ],
)
def test_a_bad_value_is_explained(name, text, words):
    with pytest.raises(SettingError) as error:
        tables.setting(name).parse(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("num.io.threads", " 009", "9"),
        ("auto.create.topics.enable", "TRUE", "true"),
        ("log.cleaner.io.max.bytes.per.second", "1e8", "1.0E8"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", "1.7976931348623157E308"),
        ("log.cleaner.io.max.bytes.per.second", "12345678.5", "1.23456785E7"),
        ("log.cleaner.io.max.bytes.per.second", "9999999", "9999999.0"),
        ("log.cleaner.io.max.bytes.per.second", "0.00025", "2.5E-4"),
        ("log.cleaner.io.max.bytes.per.second", "-1e-7", "-1.0E-7"),
        ("log.cleaner.min.cleanable.ratio", "0.50", "0.5"),
        ("log.cleanup.policy", " compact, delete", "compact,delete"),
    ],
)
def test_values_are_printed_as_kafka_prints_them(name, text, shown):
    row = tables.setting(name)
    assert row.format(row.kind.parse(text)) == shown


def test_a_password_is_not_repeated():
    row = tables.setting("ssl.keystore.password")
    assert row.sensitive
    assert "secret" not in str(row._error("secret", "text"))


def row_of(kind: str, allowed: str, default: str | None = None) -> Setting:
    return Setting.of_row(("name", kind, default, allowed, "low", "cluster", "", "words"))


@pytest.mark.parametrize(
    ("kind", "allowed", "good", "bad"),
    [
        ("int", "", ["-2147483648", "2147483647", "+5"], ["-2147483649", "2147483648", "1.0", "--1", "+", "1 2"]),
        ("short", "", ["-32768", "32767"], ["-32769", "32768"]),
        ("long", "", [str(-(2**63)), str(2**63 - 1)], [str(-(2**63) - 1), str(2**63)]),
        ("int", "1..9", ["1", "9"], ["0", "10"]),
        ("int", "1..", ["1", "2147483647"], ["0", "-1"]),
        ("int", "-1, 1..9", ["-1", "1", "9"], ["-2", "0", "10"]),
        ("double", "0..1", ["0", "1", "0.5f", "1d", "1e0", ".5"], ["-0.1", "1.1", "x", "1_0", "٣", ""]),
        ("boolean", "", ["true", " FALSE "], ["yes", "1", ""]),
        ("string", "+", ["x", " x "], ["", "  "]),
        ("string", "a|b", ["a", "b"], ["c", "A", "", "a|b"]),
        ("string", "|a", ["a", ""], ["b"]),
        ("string", "a/b", ["a", "B"], ["c", ""]),
        ("list", "a|b", ["a", "b,a", ""], ["c", "a,c", "a,,b"]),
        ("list", "", ["x,y", ""], ["x,,y", ",", "x,"]),
        ("list", "replicas", ["", "*", "0:1", "0:1, 10:2", "0:1,"], ["*,0:1", "0", "0:", ":1", "a:1", "0:b", "٣:1"]),
        ("string", "counts", ["", "a:1", "a:1,::1:2", "a:2147483647"],
         ["a", "a:", ":1", "a:x", "a:1,", "a:٣", "a:2147483648", f"a:{'1' * 5000}"]),
    ],
)  # fmt: skip
def test_values_are_held_to_each_bound(kind, allowed, good, bad):
    row = row_of(kind, allowed)
    for text in good:
        row.parse(text)
    for text in bad:
        with pytest.raises(SettingError, match=r"^name="):
            row.parse(text)


@pytest.mark.parametrize(
    ("kind", "allowed", "text", "shown"),
    [
        ("int", "", "007", "7"),
        ("boolean", "", "TRUE", "true"),
        ("list", "", " a , b,a", "a,b"),
        ("list", "replicas", "0:1 , 0:1", "0:1,0:1"),
        ("double", "", "1e7", "1.0E7"),
        ("double", "", "0.001", "0.001"),
        ("double", "", "0.00099", "9.9E-4"),
        ("double", "", "-12345678", "-1.2345678E7"),
        ("double", "", "0", "0.0"),
        ("class", "", " a.B ", "a.B"),
    ],
)
def test_a_valid_text_is_shown_in_one_way(kind, allowed, text, shown):
    assert row_of(kind, allowed).normal(text) == shown


def test_listener_setting_differs_only_in_default_and_name():
    row = row_of("int", "1..9", "5")
    own = row.for_listener("listener.name.x.name")
    assert (own.name, own.default, own.base, own.allowed, own.kind) == (
        "listener.name.x.name", None, "name", "1..9", row.kind,
    )  # fmt: skip
    assert (own.effect, own.stops) == ("limits", True), "it is not acted upon"
    narrow = row.with_limits("1..3")
    assert (narrow.name, narrow.default, narrow.allowed, narrow.effect, narrow.stops) == (
        "name", 5, "1..3", "", False,
    )  # fmt: skip
    for name in ("ssl.x", "sasl.x", "max.connections"):
        listed = Setting.of_row((name, "int", "5", "", "low", "cluster", "", "words")).for_listener(
            f"l.{name}"
        )
        assert (listed.effect, listed.stops) == ("", False), name


@pytest.mark.parametrize(
    ("changes", "effect", "told"),
    [
        ("broker", "", (True, False, False, False)),
        ("cluster", "!x", (True, False, False, True)),
        ("", "removed", (False, True, False, False)),
        ("", "zookeeper", (False, True, True, False)),
        ("read-only", "cluster", (False, False, True, False)),
    ],
)
def test_a_row_says_what_becomes_of_a_setting(changes, effect, told):
    row = Setting.of_row(("name", "password", "", "", "low", changes, effect, "words"))
    assert (row.dynamic, row.is_removed, row.acts_in_cluster, row.stops) == told
    assert row.sensitive
    assert not row_of("string", "").sensitive
