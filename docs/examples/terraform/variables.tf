variable "name" {
  description = "Of the project; of roles and bucket the beginning."
  type        = string
  default     = "trainwright"
}

variable "source_location" {
  description = "Clone address of your copy of trainwright on GitHub, such as https://github.com/you/trainwright.git"
  type        = string
}

variable "buildspec" {
  description = "What a build of the project runs: buildspec.yml builds one image; the file of `trainwright ci codebuild` plans, and starts a batch."
  type        = string
  default     = "buildspec.yml"
}

variable "webhook" {
  description = "Whether pushes to main start a build; with `buildspec` set to the file of `trainwright ci codebuild`."
  type        = bool
  default     = false
}

variable "pull_requests_of" {
  description = "With `webhook`: numbers of the accounts on GitHub whose pull requests start a build."
  type        = list(string)
  default     = []
}

variable "connection_arn" {
  description = "Connection of AWS to GitHub (codeconnections). Empty: the account's own credentials for it, or a public repository."
  type        = string
  default     = ""
}

variable "frameworks" {
  description = "A repository trainwright/<framework> each."
  type        = set(string)
  default     = ["base", "horovod", "jax", "pytorch", "tensorflow"]
}

variable "image" {
  description = "What a single build runs in; a batch says so for each image."
  type        = string
  default     = "aws/codebuild/standard:7.0"
}

variable "compute_type" {
  description = "Of a single build."
  type        = string
  default     = "BUILD_GENERAL1_LARGE"
}

variable "compute_types_allowed" {
  description = "In a batch: those of dockerfiles/ci.toml."
  type        = list(string)
  default     = ["BUILD_GENERAL1_SMALL", "BUILD_GENERAL1_MEDIUM", "BUILD_GENERAL1_LARGE"]
}

variable "most_builds" {
  description = "Of a batch: most_builds of dockerfiles/ci.toml."
  type        = number
  default     = 100
}

variable "timeout_minutes" {
  description = "Of a build, and of a batch: a choice of ours; CodeBuild takes 5 to 2160 for a build."
  type        = number
  default     = 480
}

variable "cache" {
  description = "S3: all builds share the store of sources, and download it; LOCAL: what the last host had, if it comes again (not on arm64)."
  type        = string
  default     = "S3"
  validation {
    condition     = contains(["S3", "LOCAL", "NO_CACHE"], var.cache)
    error_message = "S3, LOCAL or NO_CACHE."
  }
}

variable "keep_days" {
  description = "Of cache, artifacts and logs."
  type        = number
  default     = 30
}

variable "environment" {
  description = "Further variables of builds: TRAINWRIGHT_MIRRORS, TRAINWRIGHT_REGIONS, ..."
  type        = map(string)
  default     = {}
}

variable "github_repository" {
  description = "owner/name whose workflows may publish, by OIDC. Empty: none."
  type        = string
  default     = ""
}

variable "github_ref" {
  description = "Of which branch alone."
  type        = string
  default     = "refs/heads/main"
}

variable "github_provider_arn" {
  description = "GitHub's identity provider, where the account has it already. Empty: it is created."
  type        = string
  default     = ""
}
