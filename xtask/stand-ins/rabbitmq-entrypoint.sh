#!/bin/bash
# Starts as root, changes the owner of the data folder, and switches to the user rabbitmq.
set -eu
if [ "$(id -u)" = 0 ]; then
    chown -R rabbitmq:rabbitmq /var/lib/rabbitmq
    exec setpriv --reuid rabbitmq --regid rabbitmq --clear-groups "$0" "$@"
fi
exec "$@"
