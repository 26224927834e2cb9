"""Build images, and prove each one: probe, image tests, records."""
