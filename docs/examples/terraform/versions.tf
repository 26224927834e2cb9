terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100" # what it was validated and applied with, against a stand-in of Amazon's APIs
    }
  }
}

provider "aws" {
  default_tags {
    tags = { project = "trainwright" }
  }
}

data "aws_caller_identity" "here" {}
data "aws_partition" "here" {}
data "aws_region" "here" {}
