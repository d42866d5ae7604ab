"""Compaction: only the last record of each key is kept.

The rule: a cleaning is planned and swapped in by the thread that owns the log; in between it reads segments
that never change, and writes new ones beside them, in any thread.
"""
