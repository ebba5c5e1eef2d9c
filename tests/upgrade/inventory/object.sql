INSERT INTO inv_owners (id, ark, name) VALUES (7, 'ark:/99999/j2000000', '');
INSERT INTO inv_collections (id, ark, name, mnemonic) VALUES (7, 'ark:/99999/m5000000', '', 'demo');
INSERT INTO inv_objects (id, inv_owner_id, ark, object_type, role, aggregate_role, version_number, erc_who, erc_what, erc_when, erc_where, created, modified) VALUES (7, 7, 'ark:/99999/fk4old', 'MRT-curatorial', 'MRT-content', 'MRT-none', 1, 'who', 'what', 'when', '', '2026-11-20 10:00:00', '2026-11-20 10:00:00');
INSERT INTO inv_collections_inv_objects (inv_collection_id, inv_object_id) VALUES (7, 7);
INSERT INTO inv_versions (id, inv_object_id, ark, number, note, created) VALUES (7, 7, 'ark:/99999/fk4old', 1, '', '2026-11-20 10:00:00');
INSERT INTO inv_files (id, inv_object_id, inv_version_id, pathname, source, role, full_size, billable_size, mime_type, digest_type, digest_value, created) VALUES (7, 7, 7, 'producer/old.txt', 'producer', 'data', 3, 3, 'text/plain', 'sha-512', 'ab', '2026-11-20 10:00:00');
INSERT INTO inv_ingests (id, inv_object_id, inv_version_id, filename, ingest_type, profile, batch_id, job_id, user_agent, submitted, storage_url) VALUES (7, 7, 7, 'old.txt', 'file', 'demo', 'bid0000000002', 'jid0000000004', 'someone', '2026-11-20 09:00:00', 'file:///old');
INSERT INTO inv_localids (id, inv_object_ark, inv_owner_ark, local_id, created) VALUES (7, 'ark:/99999/fk4old', 'ark:/99999/j2000000', 'old', '2026-11-20 10:00:00');
