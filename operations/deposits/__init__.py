"""Deposits: uploads, dry runs, submissions, resubmissions."""
