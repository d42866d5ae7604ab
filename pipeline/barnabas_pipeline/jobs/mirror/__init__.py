"""mirror: topics of other clusters into one, each record once, in order, with where it came from.

The rule: the target is the only memory. Each transaction there has records, and how far their partition of the source
has come; so a mirror that is killed or started twice loses nothing. `rounds` runs it, `copying` is what a task does.
"""
