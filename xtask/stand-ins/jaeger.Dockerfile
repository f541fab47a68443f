# Substitute for jaegertracing/jaeger: receives spans over OTLP and serves Jaeger's query API.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-grpcio \
    && rm -rf /var/lib/apt/lists/*
COPY jaeger.py /usr/local/bin/jaeger.py
USER 10001
EXPOSE 4317 16686
ENTRYPOINT ["python3", "/usr/local/bin/jaeger.py"]
