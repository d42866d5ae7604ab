"""Values of settings: what is taken, what is refused with which words, and how values are printed."""

import pytest

from barnabas.config import tables
from barnabas.config.setting import SettingError


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
        (
            "num.partitions",
            "2147483648",
            "a whole number from -2147483648 to 2147483647 expected",
        ),
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
