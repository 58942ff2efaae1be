-- Politeness by group: hosts that share a domain or an address share a delay and a number of open fetches.
-- +goose Up
SELECT frontier_lock_tables();

-- The address that a host was last fetched from. If it waits for its group: when it has a turn, or below zero when it asks again.
ALTER TABLE hosts ADD COLUMN address TEXT NOT NULL DEFAULT '', ADD COLUMN turn_at BIGINT NOT NULL DEFAULT 0;

CREATE TABLE host_groups (
    name          TEXT   PRIMARY KEY,
    next_at       BIGINT NOT NULL DEFAULT 0, -- closed until
    promised_at   BIGINT NOT NULL DEFAULT 0, -- the last turn that a host waits for
    fetch_ms      BIGINT NOT NULL DEFAULT 0, -- an average of the time that a turn takes
    delay_ms      BIGINT,
    max_in_flight BIGINT NOT NULL DEFAULT 1
);

-- A turn belongs to a claim, or to a reservation, which has no URL.
CREATE TABLE turns (
    url_id     BIGINT NOT NULL,
    token      BIGINT NOT NULL,
    group_name TEXT   NOT NULL,
    started_at BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL, -- at the latest
    PRIMARY KEY (url_id, token)
);
CREATE INDEX turns_group ON turns (group_name);

-- Fails unless a group belongs into this database. The lock of the slot keeps it from being closed, so nothing is lost in a move.
-- +goose StatementBegin
CREATE FUNCTION frontier_owns(p_group text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM slots) THEN
        RETURN TRUE;
    END IF;
    PERFORM 1 FROM slots WHERE slot = frontier_slot(p_group) AND open FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'group % is not in this database', p_group USING ERRCODE = 'FR001';
    END IF;
    RETURN TRUE;
END $$;
-- +goose StatementEnd

-- Gives turns. Whoever has waited for one comes first. Of the others, each gets the promise of a later turn, up to p_ahead_ms
-- from now: hosts that come after those ask again.
-- +goose StatementBegin
CREATE FUNCTION frontier_take_turns(p_asks jsonb, p_delay_ms bigint, p_ahead_ms bigint)
RETURNS TABLE (url_id bigint, token bigint, wait_ms bigint, promised boolean) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    called text;
    g      host_groups;
    a      record;
    t      bigint;
    pause  bigint;
    step   bigint;
    ended  bigint;
    used   bigint;
    began  bigint;
    opens  bigint;
    before text;
    behind bigint;
BEGIN
    FOR called IN SELECT DISTINCT x."group" FROM jsonb_to_recordset(p_asks) AS x ("group" text) ORDER BY 1 LOOP
        PERFORM frontier_owns(called);
        LOOP
            SELECT * INTO g FROM host_groups h WHERE h.name = called FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO host_groups (name) VALUES (called) ON CONFLICT DO NOTHING;
        END LOOP;
        t := frontier_now();
        pause := COALESCE(g.delay_ms, p_delay_ms) + 1;
        WITH gone AS (DELETE FROM turns WHERE group_name = called AND ends_at <= t RETURNING ends_at) SELECT max(ends_at) INTO ended FROM gone;
        g.next_at := GREATEST(g.next_at, ended + pause);
        SELECT count(*), COALESCE(min(started_at), t) INTO used, began FROM turns WHERE group_name = called;
        step := (pause + g.fetch_ms) / g.max_in_flight + 1;
        behind := 0;
        before := NULL;
        FOR a IN SELECT x.* FROM jsonb_to_recordset(p_asks) AS x (id bigint, token bigint, "group" text, host text, first boolean, waited_ms bigint, lease_ms bigint)
            WHERE x."group" = called ORDER BY x.first DESC, x.waited_ms DESC, x.host LOOP
            url_id := a.id;
            token := a.token;
            IF used < g.max_in_flight AND g.next_at <= t AND (a.first OR g.promised_at <= t) THEN
                wait_ms := 0;
                promised := FALSE;
                INSERT INTO turns VALUES (a.id, a.token, called, t, t + a.lease_ms);
                used := used + 1;
                g.promised_at := GREATEST(g.promised_at, t);
            ELSIF a.host = before AND wait_ms > 0 THEN
                NULL; -- the same answer as to the claim before
            ELSE
                opens := GREATEST(g.next_at, t + 1, CASE WHEN used >= g.max_in_flight THEN GREATEST(began + g.fetch_ms, t) + pause END);
                promised := FALSE;
                IF a.first THEN
                    wait_ms := opens - t + behind * step;
                    behind := behind + 1;
                ELSIF GREATEST(opens, g.promised_at + step) <= t + p_ahead_ms THEN
                    promised := TRUE;
                    g.promised_at := GREATEST(opens, g.promised_at + step);
                    wait_ms := g.promised_at - t;
                ELSE
                    wait_ms := p_ahead_ms / 2 + floor(random() * p_ahead_ms / 2)::bigint;
                END IF;
            END IF;
            before := a.host;
            RETURN NEXT;
        END LOOP;
        UPDATE host_groups h SET next_at = g.next_at, promised_at = g.promised_at WHERE h.name = called;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Ends turns. Their groups open after the delay, if a request was sent.
-- +goose StatementBegin
CREATE FUNCTION frontier_end_turns(p_ends jsonb, p_delay_ms bigint) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    t bigint;
BEGIN
    PERFORM 1 FROM host_groups WHERE name IN (SELECT u.group_name FROM jsonb_to_recordset(p_ends) AS x (id bigint, token bigint)
        JOIN turns u ON u.url_id = x.id AND u.token = x.token) ORDER BY name FOR UPDATE;
    PERFORM 1 FROM turns u JOIN jsonb_to_recordset(p_ends) AS x (id bigint, token bigint) ON u.url_id = x.id AND u.token = x.token ORDER BY u.url_id, u.token FOR UPDATE OF u;
    t := frontier_now();
    WITH gone AS (
        DELETE FROM turns u USING jsonb_to_recordset(p_ends) AS x (id bigint, token bigint, sent boolean)
        WHERE u.url_id = x.id AND u.token = x.token RETURNING u.group_name, t - u.started_at AS ms, x.sent
    )
    UPDATE host_groups g SET next_at = GREATEST(g.next_at, t + 1 + COALESCE(g.delay_ms, p_delay_ms)),
        fetch_ms = CASE WHEN g.fetch_ms = 0 THEN s.ms ELSE (7 * g.fetch_ms + s.ms) / 8 END
        FROM (SELECT group_name, avg(ms)::bigint AS ms FROM gone WHERE sent GROUP BY group_name) AS s WHERE g.name = s.group_name;
END $$;
-- +goose StatementEnd

-- Closes the hosts of claims that have to wait for their groups, and releases these. A wait of 0 ends a promise.
-- +goose StatementBegin
CREATE FUNCTION frontier_line_up(p_waits jsonb) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    t bigint;
BEGIN
    PERFORM 1 FROM hosts WHERE id IN (SELECT u.host_id FROM jsonb_to_recordset(p_waits) AS x (id bigint) JOIN urls u ON u.id = x.id) ORDER BY id FOR UPDATE;
    t := frontier_now();
    UPDATE hosts h SET turn_at = CASE WHEN w.promised THEN t + w.ms WHEN w.ms IS NULL THEN 0 WHEN h.turn_at BETWEEN 1 AND t THEN h.turn_at ELSE -t - w.ms END, next_at = GREATEST(h.next_at, t + w.ms)
        FROM (SELECT u.host_id, bool_or(x.promised) AS promised, min(x.wait_ms) FILTER (WHERE x.wait_ms > 0) AS ms
            FROM jsonb_to_recordset(p_waits) AS x (id bigint, wait_ms bigint, promised boolean) JOIN urls u ON u.id = x.id GROUP BY u.host_id) AS w
        WHERE h.id = w.host_id;
    PERFORM frontier_release(COALESCE((SELECT jsonb_agg(x) FROM jsonb_to_recordset(p_waits) AS x (id bigint, token bigint, wait_ms bigint) WHERE x.wait_ms > 0), '[]'));
END $$;
-- +goose StatementEnd

-- The groups of a slot, and who has turns of them, as they go to another database.
-- +goose StatementBegin
CREATE FUNCTION frontier_slot_groups(p_slot int, OUT p_groups jsonb, OUT p_turns jsonb) LANGUAGE sql AS $$
    SELECT (SELECT COALESCE(jsonb_agg(to_jsonb(g)), '[]') FROM host_groups g WHERE frontier_slot(g.name) = p_slot),
        (SELECT COALESCE(jsonb_agg(to_jsonb(t)), '[]') FROM turns t WHERE frontier_slot(t.group_name) = p_slot)
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION frontier_settle_groups(p_groups jsonb, p_turns jsonb) RETURNS void LANGUAGE sql AS $$
    INSERT INTO host_groups SELECT * FROM jsonb_populate_recordset(NULL::host_groups, p_groups)
        ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at, promised_at = excluded.promised_at, fetch_ms = excluded.fetch_ms,
            delay_ms = excluded.delay_ms, max_in_flight = excluded.max_in_flight;
    INSERT INTO turns SELECT * FROM jsonb_populate_recordset(NULL::turns, p_turns) ON CONFLICT DO NOTHING;
$$;
-- +goose StatementEnd
