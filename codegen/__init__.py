"""The protocol compiler: JSON message definitions in, straight-line Python codecs out.

The rule: it runs on a developer's machine and in the checks, never inside the broker; `barnabas` does not
import it.
"""
