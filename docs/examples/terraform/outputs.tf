output "project" {
  value = aws_codebuild_project.images.name
}

output "repositories" {
  value = { for name, one in aws_ecr_repository.images : name => one.repository_url }
}

output "github_role_arn" {
  value = one(aws_iam_role.github[*].arn)
}
