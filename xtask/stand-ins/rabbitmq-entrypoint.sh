#!/bin/bash
# Begins as root, gives the folder of data to the broker's own user, and goes on as that.
set -eu
if [ "$(id -u)" = 0 ]; then
    chown -R rabbitmq:rabbitmq /var/lib/rabbitmq
    exec setpriv --reuid rabbitmq --regid rabbitmq --clear-groups "$0" "$@"
fi
exec "$@"
