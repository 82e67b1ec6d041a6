# Three accounts that can do little each: who runs, who starts, who builds.

resource "google_service_account" "worker" {
  project      = var.project
  account_id   = "${var.name}-worker"
  display_name = "Recordmill: reads images, writes shards"

  depends_on = [google_project_service.needed]
}

resource "google_service_account" "launcher" {
  project      = var.project
  account_id   = "${var.name}-launcher"
  display_name = "Recordmill: starts Dataflow jobs"

  depends_on = [google_project_service.needed]
}

resource "google_service_account" "builder" {
  project      = var.project
  account_id   = "${var.name}-builder"
  display_name = "Recordmill: builds the image"

  depends_on = [google_project_service.needed]
}

# Lets a machine take work from Dataflow, and tell how it goes. What it may read and write is said in storage.tf.
resource "google_project_iam_member" "worker" {
  project = var.project
  role    = "roles/dataflow.worker"
  member  = google_service_account.worker.member
}

# Start, list and cancel jobs.
resource "google_project_iam_member" "launcher" {
  project = var.project
  role    = "roles/dataflow.developer"
  member  = google_service_account.launcher.member
}

# A job may run as the worker account, and as no other.
resource "google_service_account_iam_member" "launcher_acts_as_worker" {
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.launcher.member
}

resource "google_service_account_iam_member" "launcher_users" {
  for_each = var.launcher_users

  service_account_id = google_service_account.launcher.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = each.value
}

resource "google_project_iam_member" "builder_logs" {
  project = var.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.builder.member
}
