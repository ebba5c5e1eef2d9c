"""The record in ZooKeeper. No other package talks to ZooKeeper, and no other changes a state."""
