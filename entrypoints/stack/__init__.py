"""The local stack: servers and workers on one machine as child processes, without containers or root."""
