-- SQLite needs no functions. Both databases have the same versions.
-- +goose Up
SELECT 1;
