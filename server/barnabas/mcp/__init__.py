"""`barnabas mcp`: a cluster for agents that speak the Model Context Protocol, over standard input or HTTP.

The rule: a tool is a row of `tools.TOOLS`, which names a route of the console or of the control API: nothing is done here
that those do not do. Nothing is changed unless the command was started with `--write`.
"""
