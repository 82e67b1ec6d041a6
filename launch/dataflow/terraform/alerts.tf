# What somebody is told by e-mail, if there is an address. The counters are those of docs/dataflow.md.

locals {
  alerts = { for name, alert in {
    failed = {
      title  = "a job failed"
      metric = "dataflow.googleapis.com/job/is_failed"
      above  = 0
      advice = "Read its log for the reason; the same command goes on with the shards that are finished."
    }
    long = {
      title  = "a job runs longer than ${var.alert_hours} hours"
      metric = "dataflow.googleapis.com/job/elapsed_time"
      above  = var.alert_hours * 3600
      advice = "Is it larger than usual, or does it wait for machines? A job that is cancelled keeps its finished shards."
    }
    rejects = {
      title   = "a job has rejected more than ${var.alert_rejects} images or annotations"
      metric  = "dataflow.googleapis.com/job/user_counter"
      counter = "metric.labels.metric_name = starts_with(\"rejected/\")"
      above   = var.alert_rejects
      advice  = "The counters rejected/… say for what reasons, and rejects.jsonl which they are. --max-rejects ends such a job."
    }
    vcpus = {
      title  = "jobs use more than ${var.alert_vcpus} vCPUs"
      metric = "dataflow.googleapis.com/job/current_num_vcpus"
      above  = var.alert_vcpus
      by     = []
      advice = "--max-workers limits a job; more jobs than one may run."
    }
    memory = {
      title   = "a worker ran out of memory"
      metric  = "logging.googleapis.com/user/${join("", google_logging_metric.out_of_memory[*].name)}"
      above   = 0
      by      = ["resource.labels.job_name"]
      aligner = "ALIGN_DELTA"
      advice  = "number_of_worker_harness_threads=1, or an e2-highmem machine."
    }
  } : name => alert if var.alert_email != null }
}

resource "google_monitoring_notification_channel" "email" {
  count = var.alert_email == null ? 0 : 1

  project      = var.project
  display_name = "${var.name}: ${var.alert_email}"
  type         = "email"
  labels       = { email_address = var.alert_email }

  depends_on = [google_project_service.needed]
}

# The words are those that Dataflow's page of out-of-memory errors searches for. What is dataflow_step to logs is
# dataflow_job to metrics.
resource "google_logging_metric" "out_of_memory" {
  count = var.alert_email == null ? 0 : 1

  project     = var.project
  name        = "${var.name}-out-of-memory"
  description = "Lines of Dataflow's workers that tell of memory that ran out"
  filter      = "resource.type=\"dataflow_step\" AND resource.labels.job_name=~\"^${var.job_names}$\" AND (\"out of memory\" OR \"OutOfMemory\" OR \"oom-kill\")"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
  }

  depends_on = [google_project_service.needed]
}

resource "google_monitoring_alert_policy" "of_jobs" {
  for_each = local.alerts

  project               = var.project
  display_name          = "${var.name}: ${each.value.title}"
  combiner              = "OR"
  notification_channels = google_monitoring_notification_channel.email[*].id
  user_labels           = var.labels

  conditions {
    display_name = each.value.title

    condition_threshold {
      filter = join(" AND ", compact([
        "resource.type = \"dataflow_job\"",
        "resource.labels.job_name = monitoring.regex.full_match(\"${var.job_names}\")",
        "metric.type = \"${each.value.metric}\"",
        lookup(each.value, "counter", ""),
      ]))
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = "0s"

      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = lookup(each.value, "aligner", "ALIGN_MAX")
        cross_series_reducer = "REDUCE_SUM"
        group_by_fields      = lookup(each.value, "by", ["resource.labels.job_name", "metric.labels.job_id"])
      }
    }
  }

  documentation {
    content = each.value.advice
  }
}

# A counter is reported as long as its job runs: one that stands still for half an hour is a job that does.
resource "google_monitoring_alert_policy" "no_shard" {
  count = var.alert_email == null ? 0 : 1

  project               = var.project
  display_name          = "${var.name}: no shard for ${var.alert_idle_minutes} minutes"
  combiner              = "OR"
  notification_channels = google_monitoring_notification_channel.email[*].id
  user_labels           = var.labels

  conditions {
    display_name = "no shard for ${var.alert_idle_minutes} minutes"

    condition_prometheus_query_language {
      query = join(" ", [
        "sum by (job_id) (delta(dataflow_googleapis_com:job_user_counter{monitored_resource=\"dataflow_job\",metric_name=\"shards_written\",job_name=~\"${var.job_names}\"}[${var.alert_idle_minutes}m])) <= 0",
        "and on (job_id) (dataflow_googleapis_com:job_elapsed_time{monitored_resource=\"dataflow_job\"} > ${var.alert_idle_minutes * 60})",
      ])
      duration            = "300s"
      evaluation_interval = "60s"
    }
  }

  documentation {
    content = "Workers may reach no bucket, or wait for each other: read worker and worker-startup logs. A job that is cancelled keeps its finished shards."
  }
}
