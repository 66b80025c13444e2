"""Suites that measure the whole: what tampering is told, and what honest rewriting is not blamed for."""
