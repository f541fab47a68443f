# Substitute for gcr.io/distroless/cc-debian12:nonroot: the files of a few packages without a shell.
FROM debian:bookworm-slim AS packages
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libgcc-s1 libssl3 libstdc++6 netbase tzdata
RUN set -eu; \
    mkdir -p /root-folder/usr/lib /root-folder/usr/lib64 /root-folder/usr/bin /root-folder/usr/sbin; \
    mkdir -p /root-folder/home/nonroot /root-folder/etc/ssl/certs; \
    for package in base-files ca-certificates libc6 libgcc-s1 libssl3 libstdc++6 netbase tzdata; do \
        dpkg-query --listfiles "$package"; \
    done | grep -Ev '^/(\.|usr/share/(doc|man|lintian))|^/usr/s?bin/' | sort --unique > /files; \
    tar --create --no-recursion --files-from /files --file /files.tar 2>/dev/null; \
    tar --extract --file /files.tar --directory /root-folder; \
    cp /etc/ssl/certs/ca-certificates.crt /root-folder/etc/ssl/certs/; \
    printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' > /root-folder/etc/passwd; \
    printf 'root:x:0:\nnonroot:x:65532:\n' > /root-folder/etc/group; \
    chown 65532:65532 /root-folder/home/nonroot

FROM scratch
COPY --from=packages /root-folder/ /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532
WORKDIR /home/nonroot
