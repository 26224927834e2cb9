"""One module per kind of command; each registers its own with the program."""
