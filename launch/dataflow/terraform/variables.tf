variable "project" {
  description = "The project that jobs run in, and that all of this is made in. It exists, with billing."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "A project's id is 6 to 30 lower-case letters, digits and hyphens. (It is not the project's number.)"
  }
}

variable "region" {
  description = "Where jobs run and buckets lie, like europe-west4. Take the region that trains."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "A region is wanted, like europe-west4: neither a zone nor a multi-region."
  }
}

variable "name" {
  description = "Begins the names of accounts, network and image repository."
  type        = string
  default     = "recordmill"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{3,19}[a-z0-9]$", var.name))
    error_message = "5 to 21 lower-case letters, digits and hyphens: an account's id has room for 30."
  }
}

variable "input_buckets" {
  description = "Buckets that images and annotations are read from. They exist; workers may read them and nothing else."
  type        = set(string)

  validation {
    condition     = length(var.input_buckets) > 0 && alltrue([for name in var.input_buckets : can(regex("^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$", name))])
    error_message = "One bucket at least, by its name alone: data, not gs://data/folder."
  }
}

variable "output_bucket" {
  description = "Bucket that data sets are written to."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$", var.output_bucket))
    error_message = "A bucket's name alone: data, not gs://data/folder."
  }
}

variable "output_soft_delete_days" {
  description = "How long objects of the output bucket that were deleted or replaced can be had back, and are paid for: 0, or 7 to 90 days."
  type        = number
  default     = 7

  validation {
    condition     = var.output_soft_delete_days == 0 || (var.output_soft_delete_days >= 7 && var.output_soft_delete_days <= 90)
    error_message = "0, or 7 to 90 days, which is what Cloud Storage takes."
  }
}

variable "create_output_bucket" {
  description = "Make the output bucket. False where there is one already."
  type        = bool
  default     = true
}

variable "temp_bucket" {
  description = "Bucket to make for templates, staged files and what jobs leave behind."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$", var.temp_bucket))
    error_message = "A bucket's name alone: data, not gs://data/folder."
  }
}

variable "temp_days" {
  description = "After so many days what lies in the temp bucket is deleted, but for templates. A job needs its staged files as long as it runs."
  type        = number
  default     = 14

  validation {
    condition     = var.temp_days >= 2 && floor(var.temp_days) == var.temp_days
    error_message = "2 or more whole days: a running job that loses its staged files cannot start new workers."
  }
}

variable "launcher_users" {
  description = "Who may start jobs as the launcher account: user:…, group:…, serviceAccount:…. Owners need not be listed."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.launcher_users : can(regex("^(user|group|serviceAccount):[^@ ]+@[^@ ]+$", member))])
    error_message = "Each begins with user:, group: or serviceAccount: and goes on with an address."
  }
}

variable "readers" {
  description = "Who may read data sets: what verifies and publishes them, as Airflow's account, and what trains on them."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.readers : can(regex("^(user|group|serviceAccount):[^@ ]+@[^@ ]+$", member))])
    error_message = "Each begins with user:, group: or serviceAccount: and goes on with an address."
  }
}

variable "writers" {
  description = "Who may also write and delete data sets: Airflow's account, where it writes latest.json or deletes old runs (RECORDMILL_LATEST, RECORDMILL_KEEP)."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.writers : can(regex("^(user|group|serviceAccount):[^@ ]+@[^@ ]+$", member))])
    error_message = "Each begins with user:, group: or serviceAccount: and goes on with an address."
  }
}

variable "private_network" {
  description = "Make a network with Private Google Access, for workers without public addresses. False where there is one, or where workers are to be in the network called default, with addresses."
  type        = bool
  default     = true
}

variable "shared_subnetwork" {
  description = "A subnetwork of a host project (Shared VPC) that workers run in, instead of a network made here: projects/HOST/regions/REGION/subnetworks/NAME. It has Private Google Access."
  type        = string
  default     = null

  validation {
    condition     = var.shared_subnetwork == null || can(regex("^projects/[a-z0-9.:-]+/regions/${var.region}/subnetworks/[a-z0-9-]+$", var.shared_subnetwork))
    error_message = "projects/HOST/regions/REGION/subnetworks/NAME is wanted, in the region of the jobs."
  }
}

variable "subnet_range" {
  description = "Addresses of that network's workers; one each."
  type        = string
  default     = "10.128.0.0/20"

  validation {
    condition     = can(cidrnetmask(var.subnet_range))
    error_message = "A range of IPv4 addresses is wanted, like 10.128.0.0/20."
  }
}

variable "labels" {
  description = "Labels of buckets and image repository."
  type        = map(string)
  default     = { app = "recordmill" }
}

variable "keep_images" {
  description = "So many of the newest versions of each image are kept, and others deleted when they are 30 days old; tags can then be moved and deleted. Without it they cannot, and nothing is deleted: Artifact Registry keeps what has a tag that is immutable."
  type        = number
  default     = null

  validation {
    condition     = var.keep_images == null ? true : var.keep_images >= 1 && floor(var.keep_images) == var.keep_images
    error_message = "1 or more: the template names the newest."
  }
}

variable "kms_key" {
  description = "A key of Cloud KMS, in the region, for buckets, images and jobs: projects/…/locations/…/keyRings/…/cryptoKeys/…. Without one Google's keys encrypt."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key == null || can(regex("^projects/[^/]+/locations/${var.region}/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key))
    error_message = "projects/…/locations/REGION/keyRings/…/cryptoKeys/… is wanted, in the region of the buckets."
  }
}

variable "alert_email" {
  description = "Who is told when a job fails, takes long, stands still, rejects much or runs out of memory. Without it no alerts are made."
  type        = string
  default     = null

  validation {
    condition     = var.alert_email == null || can(regex("^[^@ ]+@[^@ ]+$", var.alert_email))
    error_message = "An e-mail address is wanted."
  }
}

variable "job_names" {
  description = "Jobs that alerts are for: a regular expression of all of their names."
  type        = string
  default     = "recordmill-.*"
}

variable "alert_hours" {
  description = "A job that runs longer is told of: take twice what one usually takes."
  type        = number
  default     = 6
}

variable "alert_idle_minutes" {
  description = "A job that writes shards, and none for so long, is told of."
  type        = number
  default     = 30
}

variable "alert_rejects" {
  description = "A job that rejects more images and annotations is told of."
  type        = number
  default     = 1000
}

variable "alert_vcpus" {
  description = "More vCPUs at once are told of: twice what the 20 workers of one job have."
  type        = number
  default     = 80
}

variable "billing_account" {
  description = "The billing account (012345-6789AB-CDEF01) that a monthly budget of the project is made in, by who may do so there. Without it none is made."
  type        = string
  default     = null

  validation {
    condition     = var.billing_account == null || can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
    error_message = "A billing account's id is wanted, like 012345-6789AB-CDEF01."
  }
}

variable "monthly_budget" {
  description = "Of the project, in the billing account's currency; somebody is told at 50, 90 and 100 %, and when it will be exceeded."
  type        = number
  default     = 200

  validation {
    condition     = var.monthly_budget >= 1 && floor(var.monthly_budget) == var.monthly_budget
    error_message = "A whole number of 1 or more."
  }
}
