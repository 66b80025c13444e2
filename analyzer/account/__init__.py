"""Model -> Ledger: every stored tensor entered once, with its role, its scope, its group, and what is odd."""
