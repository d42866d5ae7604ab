"""Payments and the next offset of each partition, saved in one SQLite transaction."""

import json
import sqlite3

TABLES = """
CREATE TABLE IF NOT EXISTS payments (source INTEGER, place INTEGER, account TEXT, amount INTEGER);
CREATE TABLE IF NOT EXISTS offsets (source INTEGER PRIMARY KEY, next INTEGER NOT NULL);
"""


class OvertakenError(Exception):
    """Another process has saved these records already."""


class Ledger:
    def __init__(self, path):
        self.store = sqlite3.connect(path, timeout=30, check_same_thread=False)
        self.store.executescript(TABLES)

    def next_offset(self, partition):
        with self.store:
            self.store.execute("INSERT OR IGNORE INTO offsets VALUES (?, 0)", (partition,))
        rows = self.store.execute("SELECT next FROM offsets WHERE source = ?", (partition,))
        return rows.fetchone()[0]

    def save(self, records):
        """Save records (partition, offset, value) and the next offset of their partition, or none of it."""
        with self.store:
            for partition, offset, value in records:
                updated = self.store.execute(
                    "UPDATE offsets SET next = ? WHERE source = ? AND next <= ?",
                    (offset + 1, partition, offset),
                )
                if not updated.rowcount:
                    raise OvertakenError(f"partition {partition}, offset {offset}")
                payment = json.loads(value)
                row = (partition, offset, payment["account"], payment["amount"])
                self.store.execute("INSERT INTO payments VALUES (?, ?, ?, ?)", row)
