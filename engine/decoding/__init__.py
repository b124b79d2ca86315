"""From queued requests to rounds: schedule, prefill, propose, verify, stop."""
