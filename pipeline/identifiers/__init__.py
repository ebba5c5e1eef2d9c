"""ARKs: spelled (NOID), minted here, registered at EZID."""
