"""The jobs: each a function of its options that returns a summary, or raises a PipelineError.

The rule: a job that was killed can be started again with the same options, and the result is as if it had not been.
"""

from typing import Final

ONCE: Final = "once"
"""The trigger of a bounded run, as commands name it."""
