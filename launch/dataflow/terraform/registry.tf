resource "google_artifact_registry_repository" "images" {
  project       = var.project
  location      = var.region
  repository_id = var.name
  description   = "Images that start Recordmill's jobs and run them"
  format        = "DOCKER"
  labels        = var.labels
  kms_key_name  = var.kms_key

  # A job that is running asks for its image again whenever a worker joins, so tags do not move. But where they cannot, what
  # has one cannot be deleted either, and each of our images has one.
  docker_config {
    immutable_tags = var.keep_images == null
  }

  # A template names the newest; a job that runs an older one is not as old as that.
  dynamic "cleanup_policies" {
    for_each = var.keep_images[*]
    content {
      id     = "keep-newest"
      action = "KEEP"
      most_recent_versions {
        keep_count = cleanup_policies.value
      }
    }
  }
  dynamic "cleanup_policies" {
    for_each = var.keep_images[*]
    content {
      id     = "delete-old"
      action = "DELETE"
      condition {
        older_than = "${30 * 24 * 3600}s"
      }
    }
  }

  depends_on = [google_project_service.needed, google_kms_crypto_key_iam_member.agents]
}

resource "google_artifact_registry_repository_iam_member" "worker" {
  project    = var.project
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.worker.member
}

resource "google_artifact_registry_repository_iam_member" "builder" {
  project    = var.project
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.builder.member
}
