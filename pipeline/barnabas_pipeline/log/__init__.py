"""Reading topics: from segment files, or over the wire, into Arrow batches.

The rule: no module here uses Spark. A reader yields every offset of its range exactly once: as a record, as a corrupt span,
or counted as control, aborted or compacted away.
"""
