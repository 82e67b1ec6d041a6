# A key of one's own (CMEK): Google's agents of the services that keep data must be let use it before there is any.

locals {
  # Compute Engine's and Dataflow's for disks and shuffle, which --kms-key of a job asks for.
  key_users = var.kms_key == null ? {} : {
    storage  = data.google_storage_project_service_account.agent[0].member
    registry = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-artifactregistry.iam.gserviceaccount.com"
    compute  = "serviceAccount:service-${data.google_project.this.number}@compute-system.iam.gserviceaccount.com"
    dataflow = "serviceAccount:service-${data.google_project.this.number}@dataflow-service-producer-prod.iam.gserviceaccount.com"
  }
}

data "google_storage_project_service_account" "agent" {
  count = var.kms_key == null ? 0 : 1

  project = var.project
}

resource "google_kms_crypto_key_iam_member" "agents" {
  for_each = local.key_users

  crypto_key_id = var.kms_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = each.value

  depends_on = [google_project_service.needed]
}
