"""Service run by an operator: HTTPS intake, store, enrolment, rounds and dashboard."""
