"""How an object is described: ERC, Dublin Core, DataCite, PREMIS, and what the depositor gave."""
