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

variable "private_network" {
  description = "Make a network with Private Google Access, for workers without public addresses. False where there is one, or where workers are to be in the network called default, with addresses."
  type        = bool
  default     = true
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
