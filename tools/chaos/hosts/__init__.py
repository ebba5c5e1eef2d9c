"""Three hosts for `./dev chaos --hosts 3`, and what can happen to a host.

A host is a network, mount and UTS namespace (`host`) on a bridge of the run (`network`), with a disk of its
own (a file system in a loop file), ZooKeeper, workers, a beat and the web process; one host has Redis, one
PostgreSQL (`host_services`). Working storage and the storage root reach a host through a pass-through of FUSE
(`pass_through`), which can stall, slow and fail for one host. `host_faults` has the faults.

All namespaces are without a name and belong to processes that die with the run: the kernel takes down mounts,
interfaces and loop devices, also after SIGKILL.
"""
