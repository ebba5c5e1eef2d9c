"""The servers and workers of one machine as plain child processes: no container, no root needed."""
