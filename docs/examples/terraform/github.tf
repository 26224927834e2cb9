# A role for the workflow that `trainwright ci github` writes: of one repository, of one branch. Its ARN goes into the
# repository's variable TRAINWRIGHT_ROLE_ARN, the region into AWS_REGION.
locals {
  github   = var.github_repository == "" ? 0 : 1
  issuer   = "token.actions.githubusercontent.com"
  provider = var.github_provider_arn != "" ? var.github_provider_arn : one(aws_iam_openid_connect_provider.github[*].arn)
}

resource "aws_iam_openid_connect_provider" "github" {
  count          = local.github == 1 && var.github_provider_arn == "" ? 1 : 0
  url            = "https://${local.issuer}"
  client_id_list = ["sts.amazonaws.com"]
}

data "aws_iam_policy_document" "github" {
  count = local.github
  statement {
    actions = ["sts:AssumeRoleWithWebIdentity"]
    principals {
      type        = "Federated"
      identifiers = [local.provider]
    }
    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:aud"
      values   = ["sts.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "${local.issuer}:sub"
      values   = ["repo:${var.github_repository}:ref:${var.github_ref}"]
    }
  }
}

resource "aws_iam_role" "github" {
  count              = local.github
  name               = "${var.name}-github"
  assume_role_policy = data.aws_iam_policy_document.github[0].json
}

resource "aws_iam_role_policy" "github" {
  count  = local.github
  name   = "publish"
  role   = aws_iam_role.github[0].id
  policy = local.publish
}
