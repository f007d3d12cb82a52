BEGIN TRANSACTION;
CREATE TABLE arm (
	job_id VARCHAR(255) NOT NULL, 
	batch_size INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	reached_count INTEGER NOT NULL, 
	mean_cost FLOAT NOT NULL, 
	sum_squared_deviations FLOAT NOT NULL, 
	recent_costs JSON NOT NULL, 
	min_cost FLOAT, 
	explorations JSON NOT NULL, 
	evidence JSON NOT NULL, 
	out_of_memory BOOLEAN NOT NULL, 
	consecutive_failures INTEGER NOT NULL, 
	curves JSON NOT NULL, 
	hopeless_in_row INTEGER NOT NULL, 
	power_limit_w FLOAT, 
	power_limit_accelerator VARCHAR(255) NOT NULL, 
	CONSTRAINT pk_arm PRIMARY KEY (job_id, batch_size), 
	CONSTRAINT fk_arm_job_id FOREIGN KEY(job_id) REFERENCES job (job_id)
);
INSERT INTO "arm" VALUES('job',8,2,1,2.39111111111111085836e+02,1.20987654320992321643e+00,'[]',2.38333333333333314391e+02,'[[238.33333333333331, true], [239.88888888888889, false]]','{"log_cost": {"count": 1, "mean": 5.4736702540258975, "sum_squared_deviations": 0.0}, "log_epochs": {"count": 1, "mean": 0.0, "sum_squared_deviations": 0.0}, "epoch_cost": 239.88888888888889, "unreached_count": 1, "unreached_cost": 239.88888888888889, "unreached_epochs": 1.0, "earlier_epoch_cost": null, "surprises": 0, "held": null}',0,0,'[]',0,NULL,'');
INSERT INTO "arm" VALUES('job',16,1,1,2.39444444444444457073e+02,0.0,'[]',2.39444444444444457073e+02,'[[239.44444444444446, true]]','{"log_cost": {"count": 1, "mean": 5.478321425201629, "sum_squared_deviations": 0.0}, "log_epochs": {"count": 1, "mean": 0.0, "sum_squared_deviations": 0.0}, "epoch_cost": 239.44444444444446, "unreached_count": 0, "unreached_cost": null, "unreached_epochs": null, "earlier_epoch_cost": null, "surprises": 0, "held": null}',0,0,'[]',0,NULL,'');
INSERT INTO "arm" VALUES('job',32,0,0,0.0,0.0,'[]',NULL,'[]','{"log_cost": {"count": 0, "mean": 0.0, "sum_squared_deviations": 0.0}, "log_epochs": {"count": 0, "mean": 0.0, "sum_squared_deviations": 0.0}, "epoch_cost": null, "unreached_count": 0, "unreached_cost": null, "unreached_epochs": null, "earlier_epoch_cost": null, "surprises": 0, "held": null}',1,0,'[]',0,NULL,'');
CREATE TABLE drift (
	id INTEGER NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	reason VARCHAR(255) NOT NULL, 
	value FLOAT, 
	signalled_at DATETIME NOT NULL, 
	recurrence_number INTEGER, 
	CONSTRAINT pk_drift PRIMARY KEY (id), 
	CONSTRAINT fk_drift_job_id FOREIGN KEY(job_id) REFERENCES job (job_id)
);
CREATE TABLE job (
	job_id VARCHAR(255) NOT NULL, 
	user VARCHAR(255) NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	batch_sizes JSON NOT NULL, 
	default_batch_size INTEGER NOT NULL, 
	target_metric FLOAT NOT NULL, 
	higher_is_better BOOLEAN NOT NULL, 
	max_epochs INTEGER NOT NULL, 
	eta_knob FLOAT NOT NULL, 
	beta_knob FLOAT, 
	max_power_w FLOAT NOT NULL, 
	max_retries INTEGER NOT NULL, 
	num_recurrences INTEGER NOT NULL, 
	max_concurrent_recurrences INTEGER NOT NULL, 
	max_trial_time_s FLOAT NOT NULL, 
	policy VARCHAR(64) NOT NULL, 
	num_pruning_rounds INTEGER NOT NULL, 
	num_explorations INTEGER NOT NULL, 
	window_size INTEGER NOT NULL, 
	prior_mean FLOAT NOT NULL, 
	prior_precision FLOAT NOT NULL, 
	seed BIGINT NOT NULL, 
	learning_rate_rule VARCHAR(32) NOT NULL, 
	generation INTEGER NOT NULL, 
	data_generation INTEGER NOT NULL, 
	rated_power_w FLOAT NOT NULL, 
	min_recurrence_cost FLOAT, 
	best_batch_size INTEGER, 
	recurrence_count INTEGER NOT NULL, 
	trial_count INTEGER NOT NULL, 
	report_count INTEGER NOT NULL, 
	generator_state JSON NOT NULL, 
	created_at DATETIME NOT NULL, max_concurrent_recurrences_per_user INTEGER DEFAULT '0' NOT NULL, period_s FLOAT DEFAULT '0' NOT NULL, preprocess_every INTEGER DEFAULT '0' NOT NULL, period_began_at DATETIME, clock_back_at DATETIME, data_version VARCHAR(255) DEFAULT '' NOT NULL, data_began_number INTEGER DEFAULT '0' NOT NULL, ended_by_hand BOOLEAN DEFAULT 0 NOT NULL, counted_from INTEGER DEFAULT '0' NOT NULL, power_objective VARCHAR(64) DEFAULT 'cost' NOT NULL, max_step_time_s FLOAT DEFAULT '86400' NOT NULL, hopeless_stop BOOLEAN DEFAULT 0 NOT NULL, accelerators JSON DEFAULT '[]' NOT NULL, newcomer TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_job PRIMARY KEY (job_id)
);
INSERT INTO "job" VALUES('job','','running','[8, 16, 32]',16,0.9,1,100,0.5,2.0,0.0,3,0,1000,86400.0,'zeus',2,2,0,0.0,0.0,123456,'none',0,0,33.0,2.38333333333333314391e+02,8,3,5,5,'{"bit_generator": "PCG64", "state": {"state": 170740881631534979674546372191819977557, "inc": 86625949289666656544807559270110712949}, "has_uint32": 0, "uinteger": 0}','2026-01-01 00:00:01.000000',0,0.0,0,'2026-01-01 00:00:13.000000',NULL,'',1,0,0,'cost',86400.0,0,'[]','');
CREATE TABLE profile (
	id INTEGER NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	trial_id INTEGER NOT NULL, 
	batch_size INTEGER NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	power_limit_w FLOAT, 
	average_power_w FLOAT NOT NULL, 
	throughput_samples_per_s FLOAT NOT NULL, 
	accelerator VARCHAR(255) NOT NULL, 
	accelerator_count INTEGER NOT NULL, 
	energy_estimated BOOLEAN NOT NULL, 
	CONSTRAINT pk_profile PRIMARY KEY (id), 
	CONSTRAINT fk_profile_job_id FOREIGN KEY(job_id) REFERENCES job (job_id), 
	CONSTRAINT fk_profile_trial_id FOREIGN KEY(trial_id) REFERENCES trial (id), 
	CONSTRAINT uq_profile_trial_id_phase_power_limit_w UNIQUE (trial_id, phase, power_limit_w)
);
INSERT INTO "profile" VALUES(1,'job',1,16,'train',100.0,50.0,1000.0,'',0,0);
INSERT INTO "profile" VALUES(2,'job',2,8,'train',100.0,50.0,1000.0,'',0,0);
INSERT INTO "profile" VALUES(3,'job',3,8,'train',100.0,50.0,1000.0,'',0,0);
INSERT INTO "profile" VALUES(4,'job',4,32,'train',100.0,50.0,1000.0,'',0,0);
INSERT INTO "profile" VALUES(5,'job',5,8,'train',100.0,50.0,1000.0,'',0,0);
CREATE TABLE recurrence (
	id INTEGER NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	run_id VARCHAR(255) NOT NULL, 
	number INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	data_epoch VARCHAR(300) NOT NULL, 
	data_missing BOOLEAN NOT NULL, 
	opened_at DATETIME NOT NULL, 
	lease_expires_at DATETIME NOT NULL, 
	closed_at DATETIME, why TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_recurrence PRIMARY KEY (id), 
	CONSTRAINT fk_recurrence_job_id FOREIGN KEY(job_id) REFERENCES job (job_id), 
	CONSTRAINT uq_recurrence_job_id_number UNIQUE (job_id, number), 
	CONSTRAINT uq_recurrence_job_id_run_id UNIQUE (job_id, run_id)
);
INSERT INTO "recurrence" VALUES(1,'job','run-1',1,'reached','-0',0,'2026-01-01 00:00:01.000000','2026-01-02 00:10:01.000000','2026-01-01 00:00:06.000000','recurrence 1 of job job');
INSERT INTO "recurrence" VALUES(2,'job','run-2',2,'reached','-0',0,'2026-01-01 00:00:07.000000','2026-01-02 00:10:07.000000','2026-01-01 00:00:12.000000','recurrence 2 of job job');
INSERT INTO "recurrence" VALUES(3,'job','run-3',3,'not_reached','-0',0,'2026-01-01 00:00:13.000000','2026-01-02 00:10:13.000000','2026-01-01 00:00:18.000000','recurrence 3 of job job');
CREATE TABLE stage_turn (
	job_id VARCHAR(255) NOT NULL, 
	stage VARCHAR(255) NOT NULL, 
	recurrence_number INTEGER NOT NULL, 
	data_epoch VARCHAR(300) NOT NULL, done_at DATETIME, 
	CONSTRAINT pk_stage_turn PRIMARY KEY (job_id, stage, recurrence_number), 
	CONSTRAINT fk_stage_turn_job_id FOREIGN KEY(job_id) REFERENCES job (job_id)
);
CREATE TABLE trial (
	id INTEGER NOT NULL, 
	job_id VARCHAR(255) NOT NULL, 
	recurrence_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	slot INTEGER NOT NULL, 
	generation INTEGER NOT NULL, 
	batch_size INTEGER NOT NULL, 
	purpose VARCHAR(16) NOT NULL, 
	why TEXT NOT NULL, 
	cost_threshold FLOAT, 
	learning_rate_factor FLOAT NOT NULL, 
	power_limit_w FLOAT, 
	"plan" TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	issued_at DATETIME NOT NULL, 
	lease_expires_at DATETIME NOT NULL, 
	finished_at DATETIME, 
	report_number INTEGER, 
	report_digest VARCHAR(64), 
	reason TEXT NOT NULL, 
	error TEXT NOT NULL, 
	num_epochs INTEGER, 
	metric FLOAT, 
	energy_j FLOAT, 
	time_s FLOAT, 
	cost FLOAT, 
	energy_source VARCHAR(255) NOT NULL, 
	energy_estimated BOOLEAN NOT NULL, 
	max_power_w FLOAT, 
	accelerator VARCHAR(255) NOT NULL, 
	accelerator_count INTEGER NOT NULL, 
	node VARCHAR(255) NOT NULL, 
	attempts INTEGER NOT NULL, 
	model_uri TEXT NOT NULL, 
	exit_code INTEGER, 
	data_missing BOOLEAN NOT NULL, power_limiter VARCHAR(255) DEFAULT '' NOT NULL, power_limit_found_w FLOAT, power_limits_found_w JSON DEFAULT '{}' NOT NULL, second_energy_j FLOAT, second_energy_source VARCHAR(255) DEFAULT '' NOT NULL, least_epochs FLOAT, curve JSON DEFAULT '[]' NOT NULL, 
	CONSTRAINT pk_trial PRIMARY KEY (id), 
	CONSTRAINT fk_trial_job_id FOREIGN KEY(job_id) REFERENCES job (job_id), 
	CONSTRAINT fk_trial_recurrence_id FOREIGN KEY(recurrence_id) REFERENCES recurrence (id), 
	CONSTRAINT uq_trial_job_id_number UNIQUE (job_id, number), 
	CONSTRAINT uq_trial_recurrence_id_slot UNIQUE (recurrence_id, slot)
);
INSERT INTO "trial" VALUES(1,'job',1,1,1,0,16,'exploration','exploring from the default batch size 16 (round 1 of 2)',NULL,1.0,NULL,'{"job_id": "job", "run_id": "run-1", "slot": 1, "number": 1, "batch_size": 16, "purpose": "exploration", "why": "exploring from the default batch size 16 (round 1 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 0.0, "cost_threshold": null, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}','reached','2026-01-01 00:00:02.000000','2026-01-02 00:10:02.000000','2026-01-01 00:00:03.000000',1,'5790c6cf58189edf2108a9d410ce6d2f2edb876e2766fd01a897850e1b038bbe','','',1,0.1,1.026190476190476204e+02,1.14021164021164018716e+01,2.39444444444444457073e+02,'nvml',0,33.0,'',0,'',1,'',NULL,0,'',NULL,'{}',NULL,'',NULL,'[]');
INSERT INTO "trial" VALUES(2,'job',2,2,1,0,8,'exploration','exploring downwards from 16: 8 is next (round 1 of 2)',4.78888888888888914147e+02,1.0,NULL,'{"job_id": "job", "run_id": "run-2", "slot": 1, "number": 2, "batch_size": 8, "purpose": "exploration", "why": "exploring downwards from 16: 8 is next (round 1 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 478.8888888888889, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}','failed','2026-01-01 00:00:08.000000','2026-01-02 00:10:08.000000','2026-01-01 00:00:09.000000',2,'972c60ddaced7f1e15383274c7cbb291315e306e9e0eddc054549cd5bed78e25','trial 2','',0,NULL,NULL,0.0,NULL,'',0,0.0,'',0,'',1,'',NULL,0,'',NULL,'{}',NULL,'',NULL,'[]');
INSERT INTO "trial" VALUES(3,'job',2,3,2,0,8,'exploration','exploring downwards from 16: 8 is next (round 1 of 2), again since 1 of its trials failed',4.78888888888888914147e+02,1.0,NULL,'{"job_id": "job", "run_id": "run-2", "slot": 2, "number": 3, "batch_size": 8, "purpose": "exploration", "why": "exploring downwards from 16: 8 is next (round 1 of 2), again since 1 of its trials failed", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 478.8888888888889, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}','reached','2026-01-01 00:00:10.000000','2026-01-02 00:10:10.000000','2026-01-01 00:00:11.000000',3,'8c2f7b65e44c40da8343aa265ee3f3a1c5e456e9c9f8da8ae234a5ff3d5c0d78','','',1,0.1,1.021428571428571388e+02,1.13492063492063479659e+01,2.38333333333333314391e+02,'nvml',0,33.0,'',0,'',1,'',NULL,0,'',NULL,'{}',NULL,'',NULL,'[]');
INSERT INTO "trial" VALUES(4,'job',3,4,1,0,32,'exploration','exploring upwards from 16: 32 is next (round 1 of 2)',4.76666666666666628783e+02,1.0,NULL,'{"job_id": "job", "run_id": "run-3", "slot": 1, "number": 4, "batch_size": 32, "purpose": "exploration", "why": "exploring upwards from 16: 32 is next (round 1 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 476.66666666666663, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}','oom','2026-01-01 00:00:14.000000','2026-01-02 00:10:14.000000','2026-01-01 00:00:15.000000',4,'951b3f183eb18036c6c91ffc90538bf48aae4f2472927f99a0b45bed7e6c36a7','trial 4','',0,NULL,NULL,0.0,NULL,'',0,0.0,'',0,'',1,'',NULL,0,'',NULL,'{}',NULL,'',NULL,'[]');
INSERT INTO "trial" VALUES(5,'job',3,5,2,0,8,'exploration','exploring from 8, the cheapest of the round before (round 2 of 2)',4.76666666666666628783e+02,1.0,NULL,'{"job_id": "job", "run_id": "run-3", "slot": 2, "number": 5, "batch_size": 8, "purpose": "exploration", "why": "exploring from 8, the cheapest of the round before (round 2 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 476.66666666666663, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}','not_reached','2026-01-01 00:00:16.000000','2026-01-02 00:10:16.000000','2026-01-01 00:00:17.000000',5,'be00b31cc046739417f23e2836848049df5576d55f510feb2e99b8f7b476e14b','','',1,0.1,1.02809523809523810204e+02,1.14232804232804241451e+01,2.39888888888888885731e+02,'nvml',0,33.0,'',0,'',1,'',NULL,0,'',NULL,'{}',NULL,'',NULL,'[]');
CREATE TABLE zeus_kfp_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT zeus_kfp_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "zeus_kfp_version" VALUES('0003');
CREATE INDEX ix_job_phase ON job (phase);
CREATE INDEX ix_job_user ON job (user);
CREATE INDEX ix_recurrence_job_id_state ON recurrence (job_id, state);
CREATE INDEX ix_trial_job_id_state ON trial (job_id, state);
CREATE INDEX ix_profile_job_id ON profile (job_id);
CREATE INDEX ix_drift_job_id_recurrence_number ON drift (job_id, recurrence_number);
COMMIT;
