locals {
  own        = one(google_compute_subnetwork.workers[*].name)
  shared     = var.shared_subnetwork == null ? "projects/${var.project}/regions/${var.region}/subnetworks/${coalesce(local.own, "none")}" : var.shared_subnetwork
  private    = local.own_network || var.shared_subnetwork != null
  subnetwork = local.private ? "https://www.googleapis.com/compute/v1/${local.shared}" : ""
  images     = "${var.region}-docker.pkg.dev/${var.project}/${google_artifact_registry_repository.images.repository_id}"
  network    = local.private ? " --subnetwork ${local.subnetwork}" : " --public-ips"
  key        = var.kms_key == null ? "" : " --kms-key ${var.kms_key}"
  temp       = "gs://${google_storage_bucket.temp.name}"
}

output "worker_service_account" {
  description = "Runs launcher and workers."
  value       = google_service_account.worker.email
}

output "launcher_service_account" {
  description = "May start jobs: gcloud … --impersonate-service-account, or the account of a scheduler."
  value       = google_service_account.launcher.email
}

output "images" {
  description = "Where images are pushed to."
  value       = local.images
}

output "subnetwork" {
  description = "Where workers without public addresses run; empty where they have."
  value       = local.subnetwork
}

output "build_command" {
  description = "Builds images and templates."
  value       = "launch/dataflow/build.sh --project ${var.project} --images ${local.images} --temp ${local.temp} --build-service-account ${google_service_account.builder.email} --service-account ${google_service_account.worker.email}${local.private ? local.network : ""}"
}

output "run_command" {
  description = "Starts a job; the paths are to be filled in."
  value       = "launch/dataflow/run.sh coco --project ${var.project} --region ${var.region} --temp ${local.temp} --service-account ${google_service_account.worker.email}${local.network}${local.key} -- images=gs://${sort(var.input_buckets)[0]}/… instances=gs://${sort(var.input_buckets)[0]}/… output=gs://${var.output_bucket}/…"
}
