"""The jobs: functions of their options that return a summary, or raise a PipelineError.

The rule: a job that was killed can be started again with the same options, and the result is as if it had not been.
"""

from typing import Final

ONCE: Final = "once"
"""The trigger of a bounded run on the command line."""
