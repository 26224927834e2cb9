locals {
  project_arn = "arn:${data.aws_partition.here.partition}:codebuild:${data.aws_region.here.name}:${data.aws_caller_identity.here.account_id}:project/${var.name}"
}

resource "aws_codebuild_project" "images" {
  name           = var.name
  description    = "Training images: built, proved, pushed"
  service_role   = aws_iam_role.build.arn
  build_timeout  = var.timeout_minutes
  source_version = "main"

  source {
    type            = "GITHUB"
    location        = var.source_location
    git_clone_depth = 0 # `--since` compares with commits
    buildspec       = var.buildspec
    dynamic "auth" {
      for_each = var.connection_arn == "" ? [] : [var.connection_arn]
      content {
        type     = "CODECONNECTIONS"
        resource = auth.value
      }
    }
  }

  environment {
    type            = "LINUX_CONTAINER"
    image           = var.image
    compute_type    = var.compute_type
    privileged_mode = true # it runs a Docker engine
    dynamic "environment_variable" {
      for_each = var.environment
      content {
        name  = environment_variable.key
        value = environment_variable.value
      }
    }
  }

  cache {
    type     = var.cache
    location = var.cache == "S3" ? "${aws_s3_bucket.builds.bucket}/cache" : null
    modes    = var.cache == "LOCAL" ? ["LOCAL_CUSTOM_CACHE", "LOCAL_DOCKER_LAYER_CACHE", "LOCAL_SOURCE_CACHE"] : null
  }

  artifacts {
    type           = "S3"
    location       = aws_s3_bucket.builds.bucket
    path           = "artifacts"
    namespace_type = "BUILD_ID"
    packaging      = "NONE"
    name           = "images"
  }

  build_batch_config {
    service_role    = aws_iam_role.batch.arn
    timeout_in_mins = var.timeout_minutes
    restrictions {
      compute_types_allowed  = var.compute_types_allowed
      maximum_builds_allowed = var.most_builds
    }
  }

  logs_config {
    cloudwatch_logs {
      group_name = aws_cloudwatch_log_group.builds.name
    }
  }
}

# Pushes to main, and requests of the named accounts: these run code that nobody reviewed with a role that may publish.
resource "aws_codebuild_webhook" "images" {
  count        = var.webhook ? 1 : 0
  project_name = aws_codebuild_project.images.name
  build_type   = "BUILD" # which plans, and starts the batch
  filter_group {
    filter {
      type    = "EVENT"
      pattern = "PUSH"
    }
    filter {
      type    = "HEAD_REF"
      pattern = "^refs/heads/main$"
    }
  }
  dynamic "filter_group" {
    for_each = length(var.pull_requests_of) == 0 ? [] : [join("|", var.pull_requests_of)]
    content {
      filter {
        type    = "EVENT"
        pattern = "PULL_REQUEST_CREATED,PULL_REQUEST_UPDATED,PULL_REQUEST_REOPENED"
      }
      filter {
        type    = "ACTOR_ACCOUNT_ID"
        pattern = "^(${filter_group.value})$"
      }
    }
  }
}

resource "aws_cloudwatch_log_group" "builds" {
  name              = "/aws/codebuild/${var.name}"
  retention_in_days = var.keep_days
}

resource "aws_s3_bucket" "builds" {
  bucket = "${var.name}-builds-${data.aws_caller_identity.here.account_id}-${data.aws_region.here.name}"
}

resource "aws_s3_bucket_public_access_block" "builds" {
  bucket                  = aws_s3_bucket.builds.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_server_side_encryption_configuration" "builds" {
  bucket = aws_s3_bucket.builds.id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "builds" {
  bucket = aws_s3_bucket.builds.id
  rule {
    id     = "expire"
    status = "Enabled"
    filter {}
    expiration {
      days = var.keep_days
    }
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}
