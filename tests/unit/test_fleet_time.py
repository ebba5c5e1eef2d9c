"""An age is right although the server's clock jumps, and machines take turns with the sweep."""

from dataclasses import dataclass, field

from zkstate.connection.clock import HORIZON_MS, MACHINES, RESOLUTION, SweepRecord, advance, age_ms

PASS = 3_000
MINUTES = 60_000


@dataclass
class World:
    """A ZooKeeper server whose clock may jump, and machines whose monotonic clocks do not."""

    record: SweepRecord = field(default_factory=SweepRecord)
    true_ms: int = 10_000_000
    shift_ms: int = 0
    zxid: int = 100

    def sweep(self, machine: str = "a") -> None:
        self.zxid += 1
        offset = sum(machine.encode()) * 1_000_003  # every machine started at another time
        self.record = advance(self.record, self.zxid, self.server_ms, machine, self.true_ms + offset)

    @property
    def server_ms(self) -> int:
        return self.true_ms + self.shift_ms

    def write(self) -> tuple[int, int]:
        self.zxid += 1
        return self.zxid, self.server_ms

    def run(self, ms: int, *machines: str) -> None:
        """Time passes, with a sweep every PASS, by the machines in turn."""
        for number in range(ms // PASS):
            self.true_ms += PASS
            self.sweep((machines or ("a",))[number % len(machines or ("a",))])

    def age(self, written: tuple[int, int]) -> int:
        return age_ms(self.record.marks, *written)


def test_an_age_is_exact_while_no_clock_jumps() -> None:
    world = World()
    world.run(10 * PASS)
    world.true_ms += 1_234
    written = world.write()
    world.run(20 * PASS)

    assert world.age(written) == 20 * PASS


def test_a_clock_that_is_set_back_or_forward_changes_an_age_by_one_sweep_at_most() -> None:
    for shift in (-30 * MINUTES, 30 * MINUTES):
        world = World()
        world.run(10 * PASS)
        written = world.write()
        world.run(4 * PASS)
        world.shift_ms = shift
        world.run(4 * PASS)
        later = world.write()
        world.run(4 * PASS)

        assert abs(world.age(written) - 12 * PASS) <= PASS
        assert world.age(later) == 4 * PASS


def test_a_clock_that_jumps_in_the_sweep_interval_of_the_write_changes_the_age_by_one_sweep_at_most() -> None:
    for shift in (-30 * MINUTES, 30 * MINUTES):
        world = World()
        world.run(10 * PASS)
        written = world.write()
        world.shift_ms = shift
        world.run(4 * PASS)

        assert abs(world.age(written) - 4 * PASS) <= PASS


def test_machines_that_take_turns_measure_one_time() -> None:
    world = World()
    world.run(10 * PASS, "a", "b", "c")
    written = world.write()
    world.shift_ms = -30 * MINUTES
    world.run(60 * PASS, "a", "b", "c")

    assert 60 * PASS * (1 - 1 / RESOLUTION) - PASS <= world.age(written) <= 61 * PASS


def test_a_new_machine_after_a_jump_back_continues_from_the_last_sweep() -> None:
    world = World()
    world.run(10 * PASS, "a")
    written = world.write()
    world.shift_ms = -30 * MINUTES
    world.run(10 * PASS, "b")

    assert 9 * PASS * (1 - 1 / RESOLUTION) <= world.age(written) <= 10 * PASS


def test_a_fleet_that_stood_still_counts_that_time() -> None:
    world = World()
    world.run(10 * PASS)
    written = world.write()
    world.true_ms += 60 * MINUTES
    world.sweep()

    assert world.age(written) == 60 * MINUTES


def test_what_was_written_before_the_first_sweep_has_the_age_by_the_servers_clock() -> None:
    world = World()
    written = world.write()
    world.true_ms += 60 * MINUTES
    world.sweep()

    assert world.age(written) == 60 * MINUTES


def test_a_record_that_was_written_after_the_sweep_began_has_no_age() -> None:
    world = World()
    world.run(3 * PASS)

    assert world.age(world.write()) == 0


def test_a_record_that_another_zookeeper_wrote_is_begun_anew() -> None:
    world = World()
    world.run(10 * PASS)
    world.zxid = 5
    world.run(2 * PASS)

    assert len(world.record.marks) == 2


def test_the_marks_of_months_are_few_and_still_measure() -> None:
    world = World()
    written = world.write()
    for number in range(60_000):
        world.true_ms += 60_000
        if number == 59_000:
            written = world.write()
        world.sweep(f"m{number % 100}" if number % 1000 == 0 else "a")

    assert len(world.record.marks) < 120
    assert len(world.record.machines) <= MACHINES
    assert world.record.marks[-1].ms - world.record.marks[0].ms <= HORIZON_MS
    assert abs(world.age(written) - 1_000 * 60_000) <= 60_000
