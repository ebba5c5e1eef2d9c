"""The local stack: servers and workers of one machine as child processes, without containers or root."""
