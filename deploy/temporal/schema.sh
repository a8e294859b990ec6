#!/bin/sh
# Create Temporal's two databases, or bring them up to date. SQL_PASSWORD is the password of `temporal`.
set -eu
for name in temporal temporal_visibility; do
  folder="/etc/temporal/schema/postgresql/v12/${name#temporal_}/versioned"
  tool="temporal-sql-tool --plugin postgres12 --ep postgres --port 5432 --user temporal --db $name"
  $tool create
  $tool setup-schema --version 0.0
  $tool update-schema --schema-dir "$folder"
done
