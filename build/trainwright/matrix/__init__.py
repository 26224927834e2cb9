"""What is declared: the matrix, its models and providers, compatible versions, instances, records of proofs."""
