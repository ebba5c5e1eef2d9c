"""The web interfaces: the REST API and the pages, served by `arkline web`."""
