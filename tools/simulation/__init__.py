"""The real record, tasks and steps in a simulated world: one seed gives one history.

ensemble    ZooKeeper's tree, transactions, sessions and watches
client      kazoo's client on that ensemble
world       tasks that run one at a time in virtual time, chosen by the seed
patches     what takes time, threads, chance and file effects from the world
disk        what a power cut loses of the files
site        a site's processes: workers, beat, depositor, operator
people      the depositor and the operator
outside     EZID, mail and the receivers of callbacks
plan        what a history may meet, by its seed and its goals
facts       what a history does to its jobs and batches
judgement   what must hold once it is over
coverage    what histories have met, and the goals of the next
history     one history, from its seed to its judgement
"""
