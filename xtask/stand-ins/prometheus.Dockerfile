# Substitute for prom/prometheus: Debian's older Prometheus.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /prometheus && chown 65534:65534 /prometheus
USER 65534
WORKDIR /prometheus
VOLUME /prometheus
EXPOSE 9090
ENTRYPOINT ["prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
