"""Architectures x exports x transforms: every cell is made once and must balance."""
