#!/bin/bash
# Starts as root and switches to the user postgres. In an empty folder it creates a cluster with a
# password and a database, and runs the scripts of /docker-entrypoint-initdb.d against a server that
# listens on its socket only.
set -eu
if [ "$(id -u)" = 0 ]; then
    chown -R postgres:postgres "$PGDATA"
    chmod 700 "$PGDATA"
    exec setpriv --reuid postgres --regid postgres --clear-groups "$0" "$@"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    export POSTGRES_USER=${POSTGRES_USER:-postgres}
    initdb --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" \
        --auth-host scram-sha-256 --auth-local trust
    printf 'host all all all scram-sha-256\n' >> "$PGDATA/pg_hba.conf"
    pg_ctl start --wait --options "-c listen_addresses=''"
    database=${POSTGRES_DB:-$POSTGRES_USER}
    if [ "$database" != postgres ]; then
        createdb --username "$POSTGRES_USER" "$database"
    fi
    for script in /docker-entrypoint-initdb.d/*.sh; do
        if [ -e "$script" ]; then "$script"; fi
    done
    pg_ctl stop --wait --mode fast
fi
exec "$@" -c listen_addresses='*'
