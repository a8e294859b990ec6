#!/bin/sh
# The roles and the database of Leadhand, and the role of Temporal; PostgreSQL's image runs this once, on an empty volume.
set -eu
export SECRETS="${SECRETS:-/run/secrets}"
psql --no-psqlrc --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres --set ON_ERROR_STOP=1 <<'SQL'
\set leadhand `cat "$SECRETS/leadhand_password"`
\set temporal `cat "$SECRETS/temporal_password"`
CREATE ROLE leadhand LOGIN PASSWORD :'leadhand';
CREATE DATABASE leadhand OWNER leadhand;
CREATE ROLE temporal LOGIN CREATEDB PASSWORD :'temporal';
SQL
