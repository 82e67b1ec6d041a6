# Workers without public addresses reach Google's own services, buckets and image repository among them, and nothing else.

resource "google_compute_network" "workers" {
  count = var.private_network ? 1 : 0

  project                 = var.project
  name                    = "${var.name}-workers"
  auto_create_subnetworks = false

  depends_on = [google_project_service.needed]
}

resource "google_compute_subnetwork" "workers" {
  count = var.private_network ? 1 : 0

  project                  = var.project
  name                     = "${var.name}-workers"
  region                   = var.region
  network                  = google_compute_network.workers[0].id
  ip_cidr_range            = var.subnet_range
  private_ip_google_access = true
}

# Dataflow's workers talk to each other on these ports. All of them, and they alone, have the tag.
resource "google_compute_firewall" "between_workers" {
  count = var.private_network ? 1 : 0

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
