"""The record of batches and jobs: every change is fenced by the version of a status."""
