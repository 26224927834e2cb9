"""Reports of a judged test: terminal, HTML page, PNG picture, JUnit XML."""
