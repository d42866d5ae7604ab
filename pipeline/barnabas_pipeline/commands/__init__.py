"""The command line of the jobs: their options and their output.

The rule: options are turned into plain values here; the jobs do not depend on the command line.
"""
