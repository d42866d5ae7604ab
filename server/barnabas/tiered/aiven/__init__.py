"""A store in the layout of Aiven's plug-in, tiered-storage-for-apache-kafka 1.x, so that each can read segments of the
other.

`manifest` has the description of a segment's objects, `chunks` cuts, compresses and encrypts, `encryption` has the keys,
`custom_metadata` the plug-in's data in a segment's record, `objects` and `object_stores` access objects, `storage` combines
them.
"""
