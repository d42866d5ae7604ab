"""A store in the layout of Aiven's plug-in, tiered-storage-for-apache-kafka 1.x, so that either reads what the other wrote.

`manifest` has the description of a segment's objects, `chunks` cuts, compresses and encrypts, `encryption` has the keys,
`custom_metadata` what a segment's record keeps, `objects` and `object_stores` have the objects, `storage` joins them.
"""
