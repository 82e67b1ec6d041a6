# Workers without public addresses reach Google's own services, buckets and image repository among them, and nothing else.

locals {
  own_network = var.private_network && var.shared_subnetwork == null
}

resource "google_compute_network" "workers" {
  count = local.own_network ? 1 : 0

  project                 = var.project
  name                    = "${var.name}-workers"
  auto_create_subnetworks = false

  depends_on = [google_project_service.needed]
}

resource "google_compute_subnetwork" "workers" {
  count = local.own_network ? 1 : 0

  project                  = var.project
  name                     = "${var.name}-workers"
  region                   = var.region
  network                  = google_compute_network.workers[0].id
  ip_cidr_range            = var.subnet_range
  private_ip_google_access = true
}

# Dataflow's workers talk to each other on these ports. All of them, and they alone, have the tag.
resource "google_compute_firewall" "between_workers" {
  count = local.own_network ? 1 : 0

  project     = var.project
  name        = "${var.name}-between-workers"
  network     = google_compute_network.workers[0].id
  direction   = "INGRESS"
  source_tags = ["dataflow"]
  target_tags = ["dataflow"]

  allow {
    protocol = "tcp"
    ports    = ["12345", "12346"]
  }
}

# A subnetwork of a host project (Shared VPC). Its network wants the rule above, too, which is the host project's to make.
resource "google_compute_subnetwork_iam_member" "shared" {
  for_each = var.shared_subnetwork == null ? {} : {
    worker   = google_service_account.worker.member
    dataflow = "serviceAccount:service-${data.google_project.this.number}@dataflow-service-producer-prod.iam.gserviceaccount.com"
  }

  project    = split("/", var.shared_subnetwork)[1]
  region     = split("/", var.shared_subnetwork)[3]
  subnetwork = split("/", var.shared_subnetwork)[5]
  role       = "roles/compute.networkUser"
  member     = each.value

  depends_on = [google_project_service.needed]
}
