"""Tiered storage (KIP-405): closed segments in a remote store, and the metadata about them.

`segment` has the values, `storage` the port to a store, `lineage` finds the segment of an offset, `metadata` has the
records of `__remote_log_metadata`; `directory` and `aiven` write objects in Kafka's own test layout and in that of Aiven's
plug-in.
"""
