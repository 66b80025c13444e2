"""Ledger + a run by onnxruntime in a process of its own -> Timing: the time of each group.

Nothing is imported here: the process that runs onnxruntime loads little more than what it needs.
"""
