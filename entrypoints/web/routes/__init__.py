"""The resources of the REST API, one router for each."""
