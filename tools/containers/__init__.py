"""`./dev containers`: the project's own image and compose file, run by podman.

What a container engine does with the file is found by running it: users, read-only roots, networks, secrets,
health checks, kills, a restart with the volumes. podman keeps all that it makes in a folder of its own.
"""
