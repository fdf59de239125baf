"""Findings as something to look at: in a terminal, in a browser."""
