# Substitute for rabbitmq:4-management: Debian's older RabbitMQ, with the same plugins, user and folders.
FROM debian:bookworm-slim
RUN groupadd --system --gid 999 rabbitmq \
    && useradd --system --uid 999 --gid 999 --home-dir /var/lib/rabbitmq rabbitmq \
    && apt-get update \
    && apt-get install --yes --no-install-recommends rabbitmq-server \
    && rm -rf /var/lib/apt/lists/* /var/lib/rabbitmq /etc/rabbitmq/* \
    && mkdir -p /etc/rabbitmq/conf.d /var/lib/rabbitmq \
    && printf 'loopback_users.guest = false\nlog.console = true\n' > /etc/rabbitmq/conf.d/10-defaults.conf \
    && printf '[rabbitmq_management,rabbitmq_prometheus].\n' > /etc/rabbitmq/enabled_plugins \
    && chown rabbitmq:rabbitmq /var/lib/rabbitmq
ENV HOME=/var/lib/rabbitmq \
    PATH=/usr/lib/rabbitmq/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    RABBITMQ_CONFIG_FILES=/etc/rabbitmq/conf.d \
    RABBITMQ_LOGS=-
COPY --chmod=755 rabbitmq-entrypoint.sh /usr/local/bin/
VOLUME /var/lib/rabbitmq
EXPOSE 5672 15672 15692
ENTRYPOINT ["rabbitmq-entrypoint.sh"]
CMD ["rabbitmq-server"]
