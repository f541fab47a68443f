#!/bin/bash
# Creates a database with its own role for the call journal, and one for the agents' memory, which tool
# handlers cannot read. Runs once, when the volume is empty.
set -e
for name in calls memory; do
    psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --set name="$name" \
        --set password="$(cat "/run/secrets/postgres-$name-password")" <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
done
