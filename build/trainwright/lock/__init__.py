"""Exact versions: the format of locks and its rules. No network."""
