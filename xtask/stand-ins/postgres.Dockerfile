# Substitute for postgres:17: Debian's older PostgreSQL, with the same user and folders.
FROM debian:bookworm-slim
RUN groupadd --system --gid 999 postgres \
    && useradd --system --uid 999 --gid 999 --home-dir /var/lib/postgresql postgres \
    && mkdir -p /etc/postgresql-common \
    && printf 'create_main_cluster = false\n' > /etc/postgresql-common/createcluster.conf \
    && apt-get update \
    && apt-get install --yes --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/* \
    && mkdir -p /var/lib/postgresql/data /docker-entrypoint-initdb.d \
    && chown -R postgres:postgres /var/lib/postgresql /run/postgresql
ENV PGDATA=/var/lib/postgresql/data \
    PATH=/usr/lib/postgresql/15/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY --chmod=755 postgres-entrypoint.sh /usr/local/bin/
VOLUME /var/lib/postgresql/data
EXPOSE 5432
STOPSIGNAL SIGINT
ENTRYPOINT ["postgres-entrypoint.sh"]
CMD ["postgres"]
