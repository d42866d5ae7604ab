"""The command line of the jobs: their options and their output.

The rule: options are turned into plain values here; the jobs know no command line.
"""
