"""Child processes in which foreign input is parsed, compared, decoded and searched: schemas, patterns, records.

The rule: parsers of libraries cannot be trusted with the time, the memory or the stack of a process that serves others, and
a thread cannot be ended. A child has limits of the operating system for all three and is killed when its time is over, when
its caller is cancelled, or when it holds up other callers. `pool.Sandbox` is the parent's side, `process` the child's.
"""
