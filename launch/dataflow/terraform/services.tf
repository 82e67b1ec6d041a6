data "google_project" "this" {
  project_id = var.project
}

resource "google_project_service" "needed" {
  for_each = toset(compact([
    "artifactregistry.googleapis.com",
    var.billing_account == null ? "" : "billingbudgets.googleapis.com",
    "cloudbuild.googleapis.com",
    var.kms_key == null ? "" : "cloudkms.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "dataflow.googleapis.com",
    "iam.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "storage-component.googleapis.com",
    "storage.googleapis.com",
  ]))

  project = var.project
  service = each.value

  # Others may use them, too.
  disable_on_destroy = false
}
