"""The operator's side: intake over HTTPS, the store, enrolment, rounds, the page."""
