"""Define the locks, which hold exact versions: their format and its rules. No network."""
