"""Changes of two tables, from a seed, in transactions: some fail, some change keys, some truncate.

The rule: only PostgreSQL has the result.
"""

from __future__ import annotations

import random
import subprocess
import time

from compat.debezium.servers import Postgres

TABLES = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer text, total numeric(12,2), ratio double precision, rate real, ok boolean,
    small smallint, born date, at timestamp, zoned timestamptz, took time, tag uuid, data jsonb, raw bytea, note text
);
CREATE TABLE lines (order_id bigint, line int, item text, price numeric(9,3), PRIMARY KEY (order_id, line));
"""
IDS = 400
LONG_NOTE = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 200))"
"""Text that PostgreSQL keeps outside of the row, and does not log again when another column changes."""
ADD_COLUMN = "ALTER TABLE orders ADD COLUMN extra numeric(8,4); ALTER TABLE orders REPLICA IDENTITY FULL;"


class Workload:
    """Sends transactions to PostgreSQL."""

    def __init__(self, postgres: Postgres, seed: int) -> None:
        self.random = random.Random(seed)
        self.statements = 0
        self.has_extra = False
        self._psql = subprocess.Popen(
            postgres.psql(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def send(self, sql: str) -> None:
        """Send statements; failures are ignored, as they are intended."""
        assert self._psql.stdin is not None
        self._psql.stdin.write(sql + "\n")
        self._psql.stdin.flush()

    def run(self, seconds: float, pause: float = 0.02) -> None:
        """Send transactions for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.transaction()
            time.sleep(pause)

    def transaction(self) -> None:
        """Send one."""
        chosen = self.random
        count = chosen.choice([1, 1, 3, 20])
        statements = [self.statement() for _ in range(count)]
        if chosen.random() < 0.003:
            statements += ["TRUNCATE lines;", *(self.insert_line() for _ in range(chosen.randrange(4)))]
        self.statements += len(statements)
        self.send("BEGIN;" + "".join(statements) + ("ROLLBACK;" if chosen.random() < 0.1 else "COMMIT;"))

    def statement(self) -> str:
        """Draw one change."""
        chosen, key = self.random, self.random.randrange(IDS)
        kind = chosen.choices(
            ["insert", "update", "touch", "delete", "key", "line", "reprice", "unline", "many"],
            [6, 6, 6, 2, 1, 6, 3, 2, 0.2],
        )[0]
        match kind:
            case "insert":
                return self.insert_order(key)
            case "update":
                return f"UPDATE orders SET {self.values('=')} WHERE id = {key};"
            case "touch":
                return f"UPDATE orders SET small = {chosen.randrange(9)} WHERE id = {key};"
            case "delete":
                return f"DELETE FROM orders WHERE id = {key};"
            case "key":
                new = chosen.randrange(IDS)
                # Where the log has no row before a change, a large value that moves to another key must be told.
                note = "" if self.has_extra else ", note = note || ''"
                free = f"NOT EXISTS (SELECT FROM orders WHERE id = {new})"
                return f"UPDATE orders SET id = {new}{note} WHERE id = {key} AND {free};"
            case "line":
                return self.insert_line()
            case "reprice":
                return f"UPDATE lines SET price = price + 0.125 WHERE order_id = {key};"
            case "unline":
                return f"DELETE FROM lines WHERE order_id = {key};"
        return f"UPDATE orders SET total = -total WHERE id BETWEEN {key} AND {key + 30};"

    def insert_order(self, key: int) -> str:
        """Insert an order, or nothing if there is one."""
        names = ", ".join(name for name, _ in self.pairs())
        values = ", ".join(value for _, value in self.pairs())
        return f"INSERT INTO orders (id, {names}) VALUES ({key}, {values}) ON CONFLICT DO NOTHING;"

    def insert_line(self) -> str:
        """Insert a line, or give it another item."""
        chosen = self.random
        key = f"{chosen.randrange(IDS)}, {chosen.randrange(4)}"
        row = f"{key}, 'item {chosen.randrange(99)}', {chosen.randrange(10**6)} / 1000.0"
        return f"INSERT INTO lines VALUES ({row}) ON CONFLICT (order_id, line) DO UPDATE SET item = EXCLUDED.item;"

    def values(self, sign: str) -> str:
        """Some columns with new values."""
        rows = self.pairs()
        return ", ".join(f"{name} {sign} {value}" for name, value in self.random.sample(rows, 5))

    def pairs(self) -> list[tuple[str, str]]:
        """All columns but the key, with values."""
        n = self.random.randrange(10**6)
        rows = [
            ("customer", f"'müller {n}'"),
            ("total", f"{n - 500_000} / 100.0"),
            ("ratio", f"{n} / 7.0::float8"),
            ("rate", f"{n} / 3.0::float4"),
            ("ok", "random() < 0.5"),
            ("small", str(n % 1000 - 500)),
            ("born", f"date '1899-12-30' + {n % 90_000}"),
            ("at", f"timestamp '1969-07-20 20:17:40.123456' + interval '{n} minutes 1 microsecond'"),
            ("zoned", f"timestamptz '2026-11-20 01:02:03.4+05:30' - interval '{n} hours 7 microseconds'"),
            ("took", f"time '00:00:00.000001' + interval '{n} seconds'"),
            ("tag", "gen_random_uuid()"),
            ("data", f'\'{{"n": {n}, "list": [1, 2.50, null]}}\''),
            ("raw", f"decode(md5('{n}'), 'hex')"),
            ("note", self.random.choice([LONG_NOTE, f"'short {n}'", "NULL"])),
        ]
        return [*rows, ("extra", f"{n} / 10000.0 / 3")] if self.has_extra else rows

    def add_column(self) -> None:
        """Add a column to orders, and use it from then on; the log has whole rows before a change from then on, too."""
        self.send(ADD_COLUMN)
        self.has_extra = True

    def close(self) -> None:
        """Send a last row to each table, and wait until all is done."""
        self.send("INSERT INTO orders (id) VALUES (1000000); INSERT INTO lines VALUES (1000000, 0);")
        assert self._psql.stdin is not None
        self._psql.stdin.close()
        self._psql.wait()
