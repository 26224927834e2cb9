# What publishing needs is docs/iam-policy.json, statement by statement; the rest here is what CodeBuild itself needs.
locals {
  account = data.aws_caller_identity.here.account_id
  documented = jsondecode(replace(
    replace(file("${path.module}/../../iam-policy.json"), "111122223333", local.account),
    "arn:aws:", "arn:${data.aws_partition.here.partition}:",
  ))
  publish = jsonencode({
    Version   = local.documented.Version
    Statement = [for row in local.documented.Statement : row if contains(["Token", "Read", "Publish"], row.Sid)]
  })
}

data "aws_iam_policy_document" "codebuild_only" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["codebuild.amazonaws.com"]
    }
    condition { # of this project alone
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [local.project_arn]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account]
    }
  }
}

# --- a build --------------------------------------------------------------------------------------------------------

resource "aws_iam_role" "build" {
  name               = "${var.name}-build"
  assume_role_policy = data.aws_iam_policy_document.codebuild_only.json
}

resource "aws_iam_role_policy" "publish" {
  name   = "publish"
  role   = aws_iam_role.build.id
  policy = local.publish
}

data "aws_iam_policy_document" "build" {
  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.builds.arn}:*"]
  }
  statement {
    sid       = "CacheAndArtifacts"
    actions   = ["s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"]
    resources = ["${aws_s3_bucket.builds.arn}/cache/*", "${aws_s3_bucket.builds.arn}/artifacts/*"]
  }
  statement {
    sid       = "Bucket"
    actions   = ["s3:GetBucketAcl", "s3:GetBucketLocation"]
    resources = [aws_s3_bucket.builds.arn]
  }
  statement { # of the first build, which plans
    sid       = "Batch"
    actions   = ["codebuild:StartBuildBatch"]
    resources = [local.project_arn]
  }
  statement {
    sid = "Reports"
    actions = [
      "codebuild:BatchPutTestCases",
      "codebuild:CreateReport",
      "codebuild:CreateReportGroup",
      "codebuild:UpdateReport",
    ]
    resources = ["${replace(local.project_arn, ":project/", ":report-group/")}-*"]
  }
  dynamic "statement" {
    for_each = var.connection_arn == "" ? [] : [var.connection_arn]
    content {
      sid       = "Source"
      actions   = ["codeconnections:GetConnection", "codeconnections:GetConnectionToken", "codeconnections:UseConnection"]
      resources = [statement.value]
    }
  }
}

resource "aws_iam_role_policy" "build" {
  name   = "build"
  role   = aws_iam_role.build.id
  policy = data.aws_iam_policy_document.build.json
}

# --- a batch: starts builds, and can do nothing else ------------------------------------------------------------------

resource "aws_iam_role" "batch" {
  name               = "${var.name}-batch"
  assume_role_policy = data.aws_iam_policy_document.codebuild_only.json
}

data "aws_iam_policy_document" "batch" {
  statement {
    sid       = "Builds"
    actions   = ["codebuild:RetryBuild", "codebuild:StartBuild", "codebuild:StopBuild"]
    resources = [local.project_arn]
  }
}

resource "aws_iam_role_policy" "batch" {
  name   = "batch"
  role   = aws_iam_role.batch.id
  policy = data.aws_iam_policy_document.batch.json
}
