terraform {
  required_version = ">= 1.9"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.50"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region

  # Budgets are of no project: somebody's own login must name one that asks.
  billing_project       = var.project
  user_project_override = var.billing_account != null
}
