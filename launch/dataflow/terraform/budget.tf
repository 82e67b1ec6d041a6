# What the project may cost in a month before somebody is told. A budget stops nothing.

resource "google_billing_budget" "project" {
  count = var.billing_account == null ? 0 : 1

  billing_account = var.billing_account
  display_name    = "${var.name}: ${var.project}"

  budget_filter {
    projects = ["projects/${data.google_project.this.number}"]
  }

  # In the billing account's currency.
  amount {
    specified_amount {
      units = tostring(var.monthly_budget)
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  # What the month will have cost at its end, if it goes on so.
  threshold_rules {
    threshold_percent = 1
    spend_basis       = "FORECASTED_SPEND"
  }

  all_updates_rule {
    monitoring_notification_channels = google_monitoring_notification_channel.email[*].id
    # Without a channel those who administer the billing account are told, as they are by default.
    disable_default_iam_recipients = var.alert_email != null
  }

  depends_on = [google_project_service.needed]
}
