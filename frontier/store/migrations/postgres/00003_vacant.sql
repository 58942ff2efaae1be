-- urls_host is the index for whether a host has URLs.
-- +goose Up
CREATE INDEX urls_host ON urls (host_id);

-- Without statistics, or with statistics of few hosts, the planner would read all URLs.
-- +goose StatementBegin
CREATE FUNCTION frontier_has_urls(p_origin text) RETURNS boolean LANGUAGE sql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
    SELECT EXISTS (SELECT 1 FROM hosts h JOIN urls u ON u.host_id = h.id
        WHERE h.host = replace(replace(p_origin, 'https://', ''), 'http://', ''))
$$;
-- +goose StatementEnd
