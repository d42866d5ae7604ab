"""mirror: copies topics of other clusters into one, each record once, in order, with its origin.

The rule: all state is in the target. Each transaction there has records, and the position in their source partition; so
a mirror that is killed or started twice loses nothing. `rounds` runs it, `copying` is the work of a task.
"""
