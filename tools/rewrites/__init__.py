"""Honest ways to rewrite a file x architectures x forms: what balanced before balances afterwards."""
