resource "google_storage_bucket" "output" {
  count = var.create_output_bucket ? 1 : 0

  project  = var.project
  name     = var.output_bucket
  location = var.region
  labels   = var.labels

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # How long what was deleted or replaced can be had back. A retention policy there cannot be: a job moves its shards, and
  # replaces manifest.json (docs/decisions/0024-retention.md).
  soft_delete_policy {
    retention_duration_seconds = var.output_soft_delete_days * 24 * 3600
  }

  dynamic "encryption" {
    for_each = var.kms_key[*]
    content {
      default_kms_key_name = encryption.value
    }
  }

  lifecycle {
    prevent_destroy = true
  }

  depends_on = [google_project_service.needed, google_kms_crypto_key_iam_member.agents]
}

resource "google_storage_bucket" "temp" {
  project  = var.project
  name     = var.temp_bucket
  location = var.region
  labels   = var.labels

  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # Soft delete would keep, and charge for, every file that a job has thrown away.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    condition {
      age            = var.temp_days
      matches_prefix = ["build/", "staging/", "temp/"]
    }
    action {
      type = "Delete"
    }
  }

  dynamic "encryption" {
    for_each = var.kms_key[*]
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_project_service.needed, google_kms_crypto_key_iam_member.agents]
}

resource "google_storage_bucket_iam_member" "worker_reads_input" {
  for_each = var.input_buckets

  bucket = each.value
  role   = "roles/storage.objectViewer"
  member = google_service_account.worker.member
}

resource "google_storage_bucket_iam_member" "worker_writes_output" {
  # The name is that of the bucket that was made, so that this waits for it.
  bucket = var.create_output_bucket ? google_storage_bucket.output[0].name : var.output_bucket
  role   = "roles/storage.objectUser"
  member = google_service_account.worker.member
}

# Who starts a job on a schedule verifies and publishes what it has written, too.
resource "google_storage_bucket_iam_member" "launcher_reads_output" {
  bucket = var.create_output_bucket ? google_storage_bucket.output[0].name : var.output_bucket
  role   = "roles/storage.objectViewer"
  member = google_service_account.launcher.member
}

resource "google_storage_bucket_iam_member" "readers" {
  for_each = var.readers

  bucket = var.create_output_bucket ? google_storage_bucket.output[0].name : var.output_bucket
  role   = "roles/storage.objectViewer"
  member = each.value
}

resource "google_storage_bucket_iam_member" "writers" {
  for_each = var.writers

  bucket = var.create_output_bucket ? google_storage_bucket.output[0].name : var.output_bucket
  role   = "roles/storage.objectUser"
  member = each.value
}

resource "google_storage_bucket_iam_member" "worker_uses_temp" {
  bucket = google_storage_bucket.temp.name
  role   = "roles/storage.objectUser"
  member = google_service_account.worker.member
}

# To start a template is to read its file.
resource "google_storage_bucket_iam_member" "launcher_reads_templates" {
  bucket = google_storage_bucket.temp.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.launcher.member

  condition {
    title      = "templates"
    expression = "resource.name.startsWith(\"projects/_/buckets/${google_storage_bucket.temp.name}/objects/templates/\")"
  }
}

# Where `gcloud builds submit` puts what is to be built.
resource "google_storage_bucket_iam_member" "builder_reads_source" {
  bucket = google_storage_bucket.temp.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.builder.member

  condition {
    title      = "build"
    expression = "resource.name.startsWith(\"projects/_/buckets/${google_storage_bucket.temp.name}/objects/build/\")"
  }
}
