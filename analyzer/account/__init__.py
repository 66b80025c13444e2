"""Model -> Ledger: every stored tensor entered once, with its role, scope, group and findings."""
