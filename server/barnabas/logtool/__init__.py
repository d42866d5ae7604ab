"""`barnabas log`: look at log dirs, check them and mend them, without a broker.

The rule: looking changes nothing, not even a lock file; mending is planned whole before the first byte is changed.
"""
