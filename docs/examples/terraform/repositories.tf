# Tags of keys and of releases never move. Some others do: aliases, signatures, build caches. This version of the provider
# does not know ECR's exclusions, so that a tag may not move at all until this has been run once, and after it Terraform
# leaves that setting alone:
#
#   trainwright repositories --registry ecr --apply
resource "aws_ecr_repository" "images" {
  for_each             = var.frameworks
  name                 = "trainwright/${each.value}"
  image_tag_mutability = "IMMUTABLE"
  image_scanning_configuration {
    scan_on_push = true
  }
  encryption_configuration {
    encryption_type = "AES256"
  }
  lifecycle {
    ignore_changes  = [image_tag_mutability]
    prevent_destroy = true
  }
}

resource "aws_ecr_lifecycle_policy" "images" {
  for_each   = aws_ecr_repository.images
  repository = each.value.name
  policy     = file("${path.module}/lifecycle.json")
}
