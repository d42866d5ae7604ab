"""The command line of the jobs: which options each takes, and what it prints.

The rule: options are turned into plain values here; the jobs know no command line.
"""
