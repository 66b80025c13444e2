"""A ledger + the rules of a gate -> a verdict for each rule: passed, failed, or the reason why it was not evaluated."""
