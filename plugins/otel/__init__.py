"""Traces of jobs to an OpenTelemetry collector."""
