"""Honest ways to rewrite a file x architectures x forms: a file that balances must balance afterwards."""
