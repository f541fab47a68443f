# Substitute for python:3.12-slim: Debian's Python, with pip outside of virtual environments.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates python3 python3-pip \
    && rm -rf /var/lib/apt/lists/* /usr/lib/python3*/EXTERNALLY-MANAGED \
    && ln -s /usr/bin/python3 /usr/local/bin/python
CMD ["python"]
