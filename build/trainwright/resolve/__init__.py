"""Solve for exact versions and fetch them: apt, Python indexes, upstream sources."""
