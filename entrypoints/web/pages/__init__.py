"""The dashboard: pages for operators and depositors, rendered on the server."""
