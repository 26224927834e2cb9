"""Look at images: declared, built here, derived from ours, or published."""
