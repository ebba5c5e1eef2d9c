"""The command line as a client of the API, when ARKLINE_URL and ARKLINE_TOKEN are set."""
