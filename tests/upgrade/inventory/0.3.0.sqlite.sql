CREATE TABLE arc_batches (
	bid VARCHAR(64) NOT NULL,
	profile VARCHAR(255) NOT NULL,
	submitter TEXT NOT NULL,
	state VARCHAR(32) NOT NULL,
	message TEXT NOT NULL,
	who TEXT NOT NULL,
	why TEXT NOT NULL,
	at DATETIME NOT NULL,
	submission JSON NOT NULL,
	report JSON,
	CONSTRAINT pk_arc_batches PRIMARY KEY (bid)
);
CREATE TABLE arc_jobs (
	jid VARCHAR(64) NOT NULL,
	bid VARCHAR(64) NOT NULL,
	profile VARCHAR(255) NOT NULL,
	submitter TEXT NOT NULL,
	state VARCHAR(32) NOT NULL,
	message TEXT NOT NULL,
	who TEXT NOT NULL,
	why TEXT NOT NULL,
	at DATETIME NOT NULL,
	ark VARCHAR(255),
	kind VARCHAR(16),
	identifiers JSON NOT NULL,
	configuration JSON NOT NULL,
	history JSON NOT NULL,
	remark TEXT DEFAULT '' NOT NULL,
	CONSTRAINT pk_arc_jobs PRIMARY KEY (jid)
);
CREATE INDEX ix_arc_jobs_ark ON arc_jobs (ark);
CREATE INDEX ix_arc_jobs_bid ON arc_jobs (bid);
CREATE TABLE arc_reports (
	bid VARCHAR(64) NOT NULL,
	number INTEGER NOT NULL,
	at DATETIME NOT NULL,
	report JSON NOT NULL,
	text TEXT NOT NULL,
	CONSTRAINT pk_arc_reports PRIMARY KEY (bid, number)
);
CREATE TABLE deployment (
	"row" INTEGER NOT NULL,
	id VARCHAR(32) NOT NULL,
	created DATETIME NOT NULL,
	mark BIGINT NOT NULL,
	CONSTRAINT pk_deployment PRIMARY KEY ("row")
);
CREATE TABLE inv_collections (
	id INTEGER NOT NULL,
	ark VARCHAR(255) NOT NULL,
	name TEXT NOT NULL,
	mnemonic TEXT NOT NULL,
	CONSTRAINT pk_inv_collections PRIMARY KEY (id),
	CONSTRAINT uq_inv_collections_ark UNIQUE (ark)
);
CREATE TABLE inv_localids (
	id INTEGER NOT NULL,
	inv_object_ark VARCHAR(255) NOT NULL,
	inv_owner_ark VARCHAR(255) NOT NULL,
	local_id VARCHAR(255) NOT NULL,
	created DATETIME NOT NULL,
	CONSTRAINT pk_inv_localids PRIMARY KEY (id),
	CONSTRAINT uq_inv_localids_inv_owner_ark_local_id UNIQUE (inv_owner_ark, local_id)
);
CREATE INDEX ix_inv_localids_inv_object_ark ON inv_localids (inv_object_ark);
CREATE TABLE inv_owners (
	id INTEGER NOT NULL,
	ark VARCHAR(255) NOT NULL,
	name TEXT NOT NULL,
	CONSTRAINT pk_inv_owners PRIMARY KEY (id),
	CONSTRAINT uq_inv_owners_ark UNIQUE (ark)
);
CREATE TABLE logins (
	hash VARCHAR(64) NOT NULL,
	name VARCHAR(255) NOT NULL,
	credential TEXT NOT NULL,
	ends DATETIME NOT NULL,
	CONSTRAINT pk_logins PRIMARY KEY (hash)
);
CREATE INDEX ix_logins_name ON logins (name);
CREATE TABLE minted_arks (
	ark VARCHAR(255) NOT NULL,
	job_id VARCHAR(64) NOT NULL,
	job_key VARCHAR(32) NOT NULL,
	created DATETIME NOT NULL,
	CONSTRAINT pk_minted_arks PRIMARY KEY (ark)
);
CREATE INDEX ix_minted_arks_job_id ON minted_arks (job_id);
CREATE TABLE tokens (
	name VARCHAR(100) NOT NULL,
	hash VARCHAR(64) NOT NULL,
	role VARCHAR(16) NOT NULL,
	collections JSON,
	created DATETIME NOT NULL,
	created_by TEXT NOT NULL,
	revoked DATETIME,
	revoked_by TEXT NOT NULL,
	used DATETIME,
	CONSTRAINT pk_tokens PRIMARY KEY (name),
	CONSTRAINT uq_tokens_hash UNIQUE (hash)
);
CREATE TABLE inv_objects (
	id INTEGER NOT NULL,
	inv_owner_id INTEGER NOT NULL,
	ark VARCHAR(255) NOT NULL,
	object_type VARCHAR(32) NOT NULL,
	role VARCHAR(32) NOT NULL,
	aggregate_role VARCHAR(64) NOT NULL,
	version_number INTEGER NOT NULL,
	erc_who TEXT NOT NULL,
	erc_what TEXT NOT NULL,
	erc_when TEXT NOT NULL,
	erc_where TEXT NOT NULL,
	created DATETIME NOT NULL,
	modified DATETIME NOT NULL,
	CONSTRAINT pk_inv_objects PRIMARY KEY (id),
	CONSTRAINT fk_inv_objects_inv_owner_id FOREIGN KEY(inv_owner_id) REFERENCES inv_owners (id),
	CONSTRAINT uq_inv_objects_ark UNIQUE (ark)
);
CREATE INDEX ix_inv_objects_inv_owner_id ON inv_objects (inv_owner_id);
CREATE TABLE inv_collections_inv_objects (
	inv_collection_id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	CONSTRAINT pk_inv_collections_inv_objects PRIMARY KEY (inv_collection_id, inv_object_id),
	CONSTRAINT fk_inv_collections_inv_objects_inv_collection_id FOREIGN KEY(inv_collection_id) REFERENCES inv_collections (id),
	CONSTRAINT fk_inv_collections_inv_objects_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id)
);
CREATE INDEX ix_inv_collections_inv_objects_inv_object_id ON inv_collections_inv_objects (inv_object_id);
CREATE TABLE inv_events (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	type VARCHAR(64) NOT NULL,
	at DATETIME NOT NULL,
	agent TEXT NOT NULL,
	outcome VARCHAR(16) NOT NULL,
	damaged INTEGER NOT NULL,
	detail JSON NOT NULL,
	version INTEGER,
	note TEXT DEFAULT '' NOT NULL,
	reported DATETIME,
	CONSTRAINT pk_inv_events PRIMARY KEY (id),
	CONSTRAINT fk_inv_events_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id)
);
CREATE INDEX ix_inv_events_inv_object_id ON inv_events (inv_object_id);
CREATE INDEX ix_inv_events_reported ON inv_events (reported);
CREATE TABLE inv_fixities (
	inv_object_id INTEGER NOT NULL,
	profile VARCHAR(255) NOT NULL,
	since DATETIME NOT NULL,
	checked DATETIME,
	proved DATETIME,
	versions INTEGER NOT NULL,
	files INTEGER NOT NULL,
	bytes BIGINT NOT NULL,
	damaged INTEGER NOT NULL,
	CONSTRAINT pk_inv_fixities PRIMARY KEY (inv_object_id),
	CONSTRAINT fk_inv_fixities_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id)
);
CREATE INDEX ix_inv_fixities_damaged ON inv_fixities (damaged);
CREATE INDEX ix_inv_fixities_profile_since ON inv_fixities (profile, since);
CREATE TABLE inv_fixity_reads (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	place TEXT NOT NULL,
	at DATETIME NOT NULL,
	size BIGINT,
	sha512 VARCHAR(128),
	problem TEXT NOT NULL,
	CONSTRAINT pk_inv_fixity_reads PRIMARY KEY (id),
	CONSTRAINT fk_inv_fixity_reads_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id)
);
CREATE INDEX ix_inv_fixity_reads_inv_object_id ON inv_fixity_reads (inv_object_id);
CREATE TABLE inv_proofs (
	id VARCHAR(16) NOT NULL,
	inv_object_id INTEGER NOT NULL,
	version INTEGER NOT NULL,
	asked_by TEXT NOT NULL,
	asked DATETIME NOT NULL,
	began DATETIME,
	ended DATETIME,
	bytes_read BIGINT NOT NULL,
	bytes_total BIGINT NOT NULL,
	message TEXT NOT NULL,
	custody TEXT,
	CONSTRAINT pk_inv_proofs PRIMARY KEY (id),
	CONSTRAINT fk_inv_proofs_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id)
);
CREATE INDEX ix_inv_proofs_ended ON inv_proofs (ended);
CREATE INDEX ix_inv_proofs_inv_object_id ON inv_proofs (inv_object_id);
CREATE TABLE inv_versions (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	ark VARCHAR(255) NOT NULL,
	number INTEGER NOT NULL,
	note TEXT NOT NULL,
	created DATETIME NOT NULL,
	CONSTRAINT pk_inv_versions PRIMARY KEY (id),
	CONSTRAINT uq_inv_versions_inv_object_id_number UNIQUE (inv_object_id, number),
	CONSTRAINT fk_inv_versions_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id)
);
CREATE TABLE inv_checks (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	inv_version_id INTEGER NOT NULL,
	check_name VARCHAR(64) NOT NULL,
	check_version TEXT NOT NULL,
	event VARCHAR(64) NOT NULL,
	stage VARCHAR(16) NOT NULL,
	at DATETIME NOT NULL,
	fine INTEGER NOT NULL,
	found INTEGER NOT NULL,
	unchecked INTEGER NOT NULL,
	overruled_by TEXT,
	overruled_at DATETIME,
	overruled_reason TEXT,
	last BOOLEAN NOT NULL,
	reported DATETIME,
	CONSTRAINT pk_inv_checks PRIMARY KEY (id),
	CONSTRAINT uq_inv_checks_inv_version_id_check_name_check_version_stage_at UNIQUE (inv_version_id, check_name, check_version, stage, at),
	CONSTRAINT fk_inv_checks_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id),
	CONSTRAINT fk_inv_checks_inv_version_id FOREIGN KEY(inv_version_id) REFERENCES inv_versions (id)
);
CREATE INDEX ix_inv_checks_check_name_inv_object_id ON inv_checks (check_name, inv_object_id);
CREATE INDEX ix_inv_checks_check_name_last_check_version_at ON inv_checks (check_name, last, check_version, at);
CREATE INDEX ix_inv_checks_inv_object_id ON inv_checks (inv_object_id);
CREATE INDEX ix_inv_checks_reported ON inv_checks (reported);
CREATE TABLE inv_dublinkernels (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	inv_version_id INTEGER NOT NULL,
	seq_num INTEGER NOT NULL,
	element VARCHAR(32) NOT NULL,
	qualifier VARCHAR(32),
	value TEXT NOT NULL,
	CONSTRAINT pk_inv_dublinkernels PRIMARY KEY (id),
	CONSTRAINT fk_inv_dublinkernels_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id),
	CONSTRAINT fk_inv_dublinkernels_inv_version_id FOREIGN KEY(inv_version_id) REFERENCES inv_versions (id)
);
CREATE INDEX ix_inv_dublinkernels_inv_version_id ON inv_dublinkernels (inv_version_id);
CREATE TABLE inv_files (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	inv_version_id INTEGER NOT NULL,
	pathname TEXT NOT NULL,
	source VARCHAR(16) NOT NULL,
	role VARCHAR(16) NOT NULL,
	full_size BIGINT NOT NULL,
	billable_size BIGINT NOT NULL,
	mime_type TEXT NOT NULL,
	digest_type VARCHAR(16) NOT NULL,
	digest_value VARCHAR(128) NOT NULL,
	created DATETIME NOT NULL,
	landed_digest VARCHAR(128),
	source_digest VARCHAR(160),
	source_declared_by TEXT,
	source_container TEXT,
	source_url TEXT,
	CONSTRAINT pk_inv_files PRIMARY KEY (id),
	CONSTRAINT fk_inv_files_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id),
	CONSTRAINT fk_inv_files_inv_version_id FOREIGN KEY(inv_version_id) REFERENCES inv_versions (id)
);
CREATE INDEX ix_inv_files_inv_version_id ON inv_files (inv_version_id);
CREATE TABLE inv_ingests (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	inv_version_id INTEGER NOT NULL,
	filename TEXT NOT NULL,
	ingest_type VARCHAR(64) NOT NULL,
	profile VARCHAR(255) NOT NULL,
	batch_id VARCHAR(64) NOT NULL,
	job_id VARCHAR(64) NOT NULL,
	job_key VARCHAR(32),
	user_agent TEXT NOT NULL,
	submitted DATETIME NOT NULL,
	storage_url TEXT NOT NULL,
	landed DATETIME,
	verified DATETIME,
	recorded DATETIME,
	CONSTRAINT pk_inv_ingests PRIMARY KEY (id),
	CONSTRAINT fk_inv_ingests_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id),
	CONSTRAINT uq_inv_ingests_inv_version_id UNIQUE (inv_version_id),
	CONSTRAINT fk_inv_ingests_inv_version_id FOREIGN KEY(inv_version_id) REFERENCES inv_versions (id),
	CONSTRAINT uq_inv_ingests_job_id UNIQUE (job_id)
);
CREATE INDEX ix_inv_ingests_batch_id ON inv_ingests (batch_id);
CREATE INDEX ix_inv_ingests_inv_object_id ON inv_ingests (inv_object_id);
CREATE TABLE inv_findings (
	id INTEGER NOT NULL,
	inv_object_id INTEGER NOT NULL,
	inv_check_id INTEGER NOT NULL,
	inv_file_id INTEGER,
	pathname TEXT,
	verdict VARCHAR(16) NOT NULL,
	code TEXT,
	message TEXT,
	CONSTRAINT pk_inv_findings PRIMARY KEY (id),
	CONSTRAINT fk_inv_findings_inv_object_id FOREIGN KEY(inv_object_id) REFERENCES inv_objects (id),
	CONSTRAINT fk_inv_findings_inv_check_id FOREIGN KEY(inv_check_id) REFERENCES inv_checks (id),
	CONSTRAINT fk_inv_findings_inv_file_id FOREIGN KEY(inv_file_id) REFERENCES inv_files (id)
);
CREATE INDEX ix_inv_findings_code_inv_object_id ON inv_findings (code, inv_object_id) WHERE code IS NOT NULL;
CREATE INDEX ix_inv_findings_inv_check_id_inv_file_id ON inv_findings (inv_check_id, inv_file_id);
CREATE INDEX ix_inv_findings_verdict_inv_object_id ON inv_findings (verdict, inv_object_id);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT pk_alembic_version PRIMARY KEY (version_num)
);
INSERT INTO alembic_version (version_num) VALUES ('0011');
