"""A ledger + the rules of a gate -> a verdict for each: passed, failed, or why it could not be asked."""
