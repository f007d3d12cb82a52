


SELECT pg_catalog.set_config('search_path', '', false);




CREATE TABLE public.arm (
    job_id character varying(255) NOT NULL,
    batch_size integer NOT NULL,
    count integer NOT NULL,
    reached_count integer NOT NULL,
    mean_cost double precision NOT NULL,
    sum_squared_deviations double precision NOT NULL,
    recent_costs json NOT NULL,
    min_cost double precision,
    explorations json NOT NULL,
    evidence json NOT NULL,
    out_of_memory boolean NOT NULL,
    consecutive_failures integer NOT NULL,
    curves json NOT NULL,
    hopeless_in_row integer NOT NULL,
    power_limit_w double precision,
    power_limit_accelerator character varying(255) NOT NULL
);



CREATE TABLE public.drift (
    id integer NOT NULL,
    job_id character varying(255) NOT NULL,
    reason character varying(255) NOT NULL,
    value double precision,
    signalled_at timestamp with time zone NOT NULL,
    recurrence_number integer
);



CREATE SEQUENCE public.drift_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;



ALTER SEQUENCE public.drift_id_seq OWNED BY public.drift.id;



CREATE TABLE public.job (
    job_id character varying(255) NOT NULL,
    "user" character varying(255) NOT NULL,
    phase character varying(16) NOT NULL,
    batch_sizes json NOT NULL,
    default_batch_size integer NOT NULL,
    target_metric double precision NOT NULL,
    higher_is_better boolean NOT NULL,
    max_epochs integer NOT NULL,
    eta_knob double precision NOT NULL,
    beta_knob double precision,
    max_power_w double precision NOT NULL,
    max_retries integer NOT NULL,
    num_recurrences integer NOT NULL,
    max_concurrent_recurrences integer NOT NULL,
    max_trial_time_s double precision NOT NULL,
    policy character varying(64) NOT NULL,
    num_pruning_rounds integer NOT NULL,
    num_explorations integer NOT NULL,
    window_size integer NOT NULL,
    prior_mean double precision NOT NULL,
    prior_precision double precision NOT NULL,
    seed bigint NOT NULL,
    learning_rate_rule character varying(32) NOT NULL,
    generation integer NOT NULL,
    data_generation integer NOT NULL,
    rated_power_w double precision NOT NULL,
    min_recurrence_cost double precision,
    best_batch_size integer,
    recurrence_count integer NOT NULL,
    trial_count integer NOT NULL,
    report_count integer NOT NULL,
    generator_state json NOT NULL,
    created_at timestamp with time zone NOT NULL,
    max_concurrent_recurrences_per_user integer DEFAULT 0 NOT NULL,
    period_s double precision DEFAULT '0'::double precision NOT NULL,
    preprocess_every integer DEFAULT 0 NOT NULL,
    period_began_at timestamp with time zone,
    clock_back_at timestamp with time zone,
    data_version character varying(255) DEFAULT ''::character varying NOT NULL,
    data_began_number integer DEFAULT 0 NOT NULL,
    ended_by_hand boolean DEFAULT false NOT NULL,
    counted_from integer DEFAULT 0 NOT NULL,
    power_objective character varying(64) DEFAULT 'cost'::character varying NOT NULL,
    max_step_time_s double precision DEFAULT '86400'::double precision NOT NULL,
    hopeless_stop boolean DEFAULT false NOT NULL,
    accelerators json DEFAULT '[]'::json NOT NULL,
    newcomer text DEFAULT ''::text NOT NULL
);



CREATE TABLE public.profile (
    id integer NOT NULL,
    job_id character varying(255) NOT NULL,
    trial_id integer NOT NULL,
    batch_size integer NOT NULL,
    phase character varying(16) NOT NULL,
    power_limit_w double precision,
    average_power_w double precision NOT NULL,
    throughput_samples_per_s double precision NOT NULL,
    accelerator character varying(255) NOT NULL,
    accelerator_count integer NOT NULL,
    energy_estimated boolean NOT NULL
);



CREATE SEQUENCE public.profile_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;



ALTER SEQUENCE public.profile_id_seq OWNED BY public.profile.id;



CREATE TABLE public.recurrence (
    id integer NOT NULL,
    job_id character varying(255) NOT NULL,
    run_id character varying(255) NOT NULL,
    number integer NOT NULL,
    state character varying(16) NOT NULL,
    data_epoch character varying(300) NOT NULL,
    data_missing boolean NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    closed_at timestamp with time zone,
    why text DEFAULT ''::text NOT NULL
);



CREATE SEQUENCE public.recurrence_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;



ALTER SEQUENCE public.recurrence_id_seq OWNED BY public.recurrence.id;



CREATE TABLE public.stage_turn (
    job_id character varying(255) NOT NULL,
    stage character varying(255) NOT NULL,
    recurrence_number integer NOT NULL,
    data_epoch character varying(300) NOT NULL,
    done_at timestamp with time zone
);



CREATE TABLE public.trial (
    id integer NOT NULL,
    job_id character varying(255) NOT NULL,
    recurrence_id integer NOT NULL,
    number integer NOT NULL,
    slot integer NOT NULL,
    generation integer NOT NULL,
    batch_size integer NOT NULL,
    purpose character varying(16) NOT NULL,
    why text NOT NULL,
    cost_threshold double precision,
    learning_rate_factor double precision NOT NULL,
    power_limit_w double precision,
    plan text NOT NULL,
    state character varying(16) NOT NULL,
    issued_at timestamp with time zone NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    report_number integer,
    report_digest character varying(64),
    reason text NOT NULL,
    error text NOT NULL,
    num_epochs integer,
    metric double precision,
    energy_j double precision,
    time_s double precision,
    cost double precision,
    energy_source character varying(255) NOT NULL,
    energy_estimated boolean NOT NULL,
    max_power_w double precision,
    accelerator character varying(255) NOT NULL,
    accelerator_count integer NOT NULL,
    node character varying(255) NOT NULL,
    attempts integer NOT NULL,
    model_uri text NOT NULL,
    exit_code integer,
    data_missing boolean NOT NULL,
    power_limiter character varying(255) DEFAULT ''::character varying NOT NULL,
    power_limit_found_w double precision,
    power_limits_found_w json DEFAULT '{}'::json NOT NULL,
    second_energy_j double precision,
    second_energy_source character varying(255) DEFAULT ''::character varying NOT NULL,
    least_epochs double precision,
    curve json DEFAULT '[]'::json NOT NULL
);



CREATE SEQUENCE public.trial_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;



ALTER SEQUENCE public.trial_id_seq OWNED BY public.trial.id;



CREATE TABLE public.zeus_kfp_version (
    version_num character varying(32) NOT NULL
);



ALTER TABLE ONLY public.drift ALTER COLUMN id SET DEFAULT nextval('public.drift_id_seq'::regclass);



ALTER TABLE ONLY public.profile ALTER COLUMN id SET DEFAULT nextval('public.profile_id_seq'::regclass);



ALTER TABLE ONLY public.recurrence ALTER COLUMN id SET DEFAULT nextval('public.recurrence_id_seq'::regclass);



ALTER TABLE ONLY public.trial ALTER COLUMN id SET DEFAULT nextval('public.trial_id_seq'::regclass);



INSERT INTO public.arm VALUES ('job', 16, 1, 1, 239.44444444444446, 0, '[]', 239.44444444444446, '[[239.44444444444446, true]]', '{"log_cost": {"count": 1, "mean": 5.478321425201629, "sum_squared_deviations": 0.0}, "log_epochs": {"count": 1, "mean": 0.0, "sum_squared_deviations": 0.0}, "epoch_cost": 239.44444444444446, "unreached_count": 0, "unreached_cost": null, "unreached_epochs": null, "earlier_epoch_cost": null, "surprises": 0, "held": null}', false, 0, '[]', 0, NULL, '');
INSERT INTO public.arm VALUES ('job', 32, 0, 0, 0, 0, '[]', NULL, '[]', '{"log_cost": {"count": 0, "mean": 0.0, "sum_squared_deviations": 0.0}, "log_epochs": {"count": 0, "mean": 0.0, "sum_squared_deviations": 0.0}, "epoch_cost": null, "unreached_count": 0, "unreached_cost": null, "unreached_epochs": null, "earlier_epoch_cost": null, "surprises": 0, "held": null}', true, 0, '[]', 0, NULL, '');
INSERT INTO public.arm VALUES ('job', 8, 2, 1, 239.1111111111111, 1.2098765432099232, '[]', 238.33333333333331, '[[238.33333333333331, true], [239.88888888888889, false]]', '{"log_cost": {"count": 1, "mean": 5.4736702540258975, "sum_squared_deviations": 0.0}, "log_epochs": {"count": 1, "mean": 0.0, "sum_squared_deviations": 0.0}, "epoch_cost": 239.88888888888889, "unreached_count": 1, "unreached_cost": 239.88888888888889, "unreached_epochs": 1.0, "earlier_epoch_cost": null, "surprises": 0, "held": null}', false, 0, '[]', 0, NULL, '');






INSERT INTO public.job VALUES ('job', '', 'running', '[8, 16, 32]', 16, 0.9, true, 100, 0.5, 2, 0, 3, 0, 1000, 86400, 'zeus', 2, 2, 0, 0, 0, 123456, 'none', 0, 0, 33, 238.33333333333331, 8, 3, 5, 5, '{"bit_generator": "PCG64", "state": {"state": 170740881631534979674546372191819977557, "inc": 86625949289666656544807559270110712949}, "has_uint32": 0, "uinteger": 0}', '2026-01-01 00:00:01+00', 0, 0, 0, '2026-01-01 00:00:13+00', NULL, '', 1, false, 0, 'cost', 86400, false, '[]', '');



INSERT INTO public.profile VALUES (1, 'job', 1, 16, 'train', 100, 50, 1000, '', 0, false);
INSERT INTO public.profile VALUES (2, 'job', 2, 8, 'train', 100, 50, 1000, '', 0, false);
INSERT INTO public.profile VALUES (3, 'job', 3, 8, 'train', 100, 50, 1000, '', 0, false);
INSERT INTO public.profile VALUES (4, 'job', 4, 32, 'train', 100, 50, 1000, '', 0, false);
INSERT INTO public.profile VALUES (5, 'job', 5, 8, 'train', 100, 50, 1000, '', 0, false);



INSERT INTO public.recurrence VALUES (1, 'job', 'run-1', 1, 'reached', '-0', false, '2026-01-01 00:00:01+00', '2026-01-02 00:10:01+00', '2026-01-01 00:00:06+00', 'recurrence 1 of job job');
INSERT INTO public.recurrence VALUES (2, 'job', 'run-2', 2, 'reached', '-0', false, '2026-01-01 00:00:07+00', '2026-01-02 00:10:07+00', '2026-01-01 00:00:12+00', 'recurrence 2 of job job');
INSERT INTO public.recurrence VALUES (3, 'job', 'run-3', 3, 'not_reached', '-0', false, '2026-01-01 00:00:13+00', '2026-01-02 00:10:13+00', '2026-01-01 00:00:18+00', 'recurrence 3 of job job');






INSERT INTO public.trial VALUES (1, 'job', 1, 1, 1, 0, 16, 'exploration', 'exploring from the default batch size 16 (round 1 of 2)', NULL, 1, NULL, '{"job_id": "job", "run_id": "run-1", "slot": 1, "number": 1, "batch_size": 16, "purpose": "exploration", "why": "exploring from the default batch size 16 (round 1 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 0.0, "cost_threshold": null, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}', 'reached', '2026-01-01 00:00:02+00', '2026-01-02 00:10:02+00', '2026-01-01 00:00:03+00', 1, '5790c6cf58189edf2108a9d410ce6d2f2edb876e2766fd01a897850e1b038bbe', '', '', 1, 0.1, 102.61904761904762, 11.402116402116402, 239.44444444444446, 'nvml', false, 33, '', 0, '', 1, '', NULL, false, '', NULL, '{}', NULL, '', NULL, '[]');
INSERT INTO public.trial VALUES (2, 'job', 2, 2, 1, 0, 8, 'exploration', 'exploring downwards from 16: 8 is next (round 1 of 2)', 478.8888888888889, 1, NULL, '{"job_id": "job", "run_id": "run-2", "slot": 1, "number": 2, "batch_size": 8, "purpose": "exploration", "why": "exploring downwards from 16: 8 is next (round 1 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 478.8888888888889, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}', 'failed', '2026-01-01 00:00:08+00', '2026-01-02 00:10:08+00', '2026-01-01 00:00:09+00', 2, '972c60ddaced7f1e15383274c7cbb291315e306e9e0eddc054549cd5bed78e25', 'trial 2', '', 0, NULL, NULL, 0, NULL, '', false, 0, '', 0, '', 1, '', NULL, false, '', NULL, '{}', NULL, '', NULL, '[]');
INSERT INTO public.trial VALUES (3, 'job', 2, 3, 2, 0, 8, 'exploration', 'exploring downwards from 16: 8 is next (round 1 of 2), again since 1 of its trials failed', 478.8888888888889, 1, NULL, '{"job_id": "job", "run_id": "run-2", "slot": 2, "number": 3, "batch_size": 8, "purpose": "exploration", "why": "exploring downwards from 16: 8 is next (round 1 of 2), again since 1 of its trials failed", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 478.8888888888889, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}', 'reached', '2026-01-01 00:00:10+00', '2026-01-02 00:10:10+00', '2026-01-01 00:00:11+00', 3, '8c2f7b65e44c40da8343aa265ee3f3a1c5e456e9c9f8da8ae234a5ff3d5c0d78', '', '', 1, 0.1, 102.14285714285714, 11.349206349206348, 238.33333333333331, 'nvml', false, 33, '', 0, '', 1, '', NULL, false, '', NULL, '{}', NULL, '', NULL, '[]');
INSERT INTO public.trial VALUES (4, 'job', 3, 4, 1, 0, 32, 'exploration', 'exploring upwards from 16: 32 is next (round 1 of 2)', 476.66666666666663, 1, NULL, '{"job_id": "job", "run_id": "run-3", "slot": 1, "number": 4, "batch_size": 32, "purpose": "exploration", "why": "exploring upwards from 16: 32 is next (round 1 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 476.66666666666663, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}', 'oom', '2026-01-01 00:00:14+00', '2026-01-02 00:10:14+00', '2026-01-01 00:00:15+00', 4, '951b3f183eb18036c6c91ffc90538bf48aae4f2472927f99a0b45bed7e6c36a7', 'trial 4', '', 0, NULL, NULL, 0, NULL, '', false, 0, '', 0, '', 1, '', NULL, false, '', NULL, '{}', NULL, '', NULL, '[]');
INSERT INTO public.trial VALUES (5, 'job', 3, 5, 2, 0, 8, 'exploration', 'exploring from 8, the cheapest of the round before (round 2 of 2)', 476.66666666666663, 1, NULL, '{"job_id": "job", "run_id": "run-3", "slot": 2, "number": 5, "batch_size": 8, "purpose": "exploration", "why": "exploring from 8, the cheapest of the round before (round 2 of 2)", "learning_rate_factor": 1.0, "target_metric": 0.9, "higher_is_better": true, "max_epochs": 100, "eta_knob": 0.5, "max_power_w": 33.0, "cost_threshold": 476.66666666666663, "max_trial_time_s": 86400.0, "power_limit_w": null, "power_limit_accelerator": "", "power_objective": "cost", "reference": []}', 'not_reached', '2026-01-01 00:00:16+00', '2026-01-02 00:10:16+00', '2026-01-01 00:00:17+00', 5, 'be00b31cc046739417f23e2836848049df5576d55f510feb2e99b8f7b476e14b', '', '', 1, 0.1, 102.80952380952381, 11.423280423280424, 239.88888888888889, 'nvml', false, 33, '', 0, '', 1, '', NULL, false, '', NULL, '{}', NULL, '', NULL, '[]');



INSERT INTO public.zeus_kfp_version VALUES ('0003');



SELECT pg_catalog.setval('public.drift_id_seq', 1, false);



SELECT pg_catalog.setval('public.profile_id_seq', 5, true);



SELECT pg_catalog.setval('public.recurrence_id_seq', 3, true);



SELECT pg_catalog.setval('public.trial_id_seq', 5, true);



ALTER TABLE ONLY public.arm
    ADD CONSTRAINT pk_arm PRIMARY KEY (job_id, batch_size);



ALTER TABLE ONLY public.drift
    ADD CONSTRAINT pk_drift PRIMARY KEY (id);



ALTER TABLE ONLY public.job
    ADD CONSTRAINT pk_job PRIMARY KEY (job_id);



ALTER TABLE ONLY public.profile
    ADD CONSTRAINT pk_profile PRIMARY KEY (id);



ALTER TABLE ONLY public.recurrence
    ADD CONSTRAINT pk_recurrence PRIMARY KEY (id);



ALTER TABLE ONLY public.stage_turn
    ADD CONSTRAINT pk_stage_turn PRIMARY KEY (job_id, stage, recurrence_number);



ALTER TABLE ONLY public.trial
    ADD CONSTRAINT pk_trial PRIMARY KEY (id);



ALTER TABLE ONLY public.profile
    ADD CONSTRAINT uq_profile_trial_id_phase_power_limit_w UNIQUE (trial_id, phase, power_limit_w);



ALTER TABLE ONLY public.recurrence
    ADD CONSTRAINT uq_recurrence_job_id_number UNIQUE (job_id, number);



ALTER TABLE ONLY public.recurrence
    ADD CONSTRAINT uq_recurrence_job_id_run_id UNIQUE (job_id, run_id);



ALTER TABLE ONLY public.trial
    ADD CONSTRAINT uq_trial_job_id_number UNIQUE (job_id, number);



ALTER TABLE ONLY public.trial
    ADD CONSTRAINT uq_trial_recurrence_id_slot UNIQUE (recurrence_id, slot);



ALTER TABLE ONLY public.zeus_kfp_version
    ADD CONSTRAINT zeus_kfp_version_pkc PRIMARY KEY (version_num);



CREATE INDEX ix_drift_job_id_recurrence_number ON public.drift USING btree (job_id, recurrence_number);



CREATE INDEX ix_job_phase ON public.job USING btree (phase);



CREATE INDEX ix_job_user ON public.job USING btree ("user");



CREATE INDEX ix_profile_job_id ON public.profile USING btree (job_id);



CREATE INDEX ix_recurrence_job_id_state ON public.recurrence USING btree (job_id, state);



CREATE INDEX ix_trial_job_id_state ON public.trial USING btree (job_id, state);



ALTER TABLE ONLY public.arm
    ADD CONSTRAINT fk_arm_job_id FOREIGN KEY (job_id) REFERENCES public.job(job_id);



ALTER TABLE ONLY public.drift
    ADD CONSTRAINT fk_drift_job_id FOREIGN KEY (job_id) REFERENCES public.job(job_id);



ALTER TABLE ONLY public.profile
    ADD CONSTRAINT fk_profile_job_id FOREIGN KEY (job_id) REFERENCES public.job(job_id);



ALTER TABLE ONLY public.profile
    ADD CONSTRAINT fk_profile_trial_id FOREIGN KEY (trial_id) REFERENCES public.trial(id);



ALTER TABLE ONLY public.recurrence
    ADD CONSTRAINT fk_recurrence_job_id FOREIGN KEY (job_id) REFERENCES public.job(job_id);



ALTER TABLE ONLY public.stage_turn
    ADD CONSTRAINT fk_stage_turn_job_id FOREIGN KEY (job_id) REFERENCES public.job(job_id);



ALTER TABLE ONLY public.trial
    ADD CONSTRAINT fk_trial_job_id FOREIGN KEY (job_id) REFERENCES public.job(job_id);



ALTER TABLE ONLY public.trial
    ADD CONSTRAINT fk_trial_recurrence_id FOREIGN KEY (recurrence_id) REFERENCES public.recurrence(id);




