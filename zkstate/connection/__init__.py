"""The connection to ZooKeeper: sessions, transactions, locks."""
