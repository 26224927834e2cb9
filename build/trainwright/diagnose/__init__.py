"""Find out why a job failed: read logs while they grow, and match causes."""
