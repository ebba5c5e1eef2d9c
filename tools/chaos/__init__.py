"""`./dev chaos`: scheduled faults in a whole repository, and a check that no object is lost or duplicated.

`schedule` draws the faults, `cluster` starts the repository, `run` injects the faults (`faults`,
`server_faults`) while `background` submits deposits of the collections in `profiles`, and `checker` compares
`final_state` with `deposits`. `hosts` has all of that on three hosts, and faults of hosts.
"""
