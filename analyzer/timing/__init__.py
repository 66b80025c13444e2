"""Ledger + a run by onnxruntime in a separate process -> Timing: the time of each group.

This file imports nothing, so that the process that runs onnxruntime loads little more than it needs.
"""
