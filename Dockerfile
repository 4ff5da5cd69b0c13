# costguard in a container: `watch`, which polls, judges, acts, and answers HTTP through a child of its own.
#   docker build -t costguard .
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges -v costguard:/var/lib/costguard \
#     -v ./costguard.toml:/etc/costguard/costguard.toml:ro costguard
# docs/DEPLOY.md has the keys, the ports and the database.

FROM python:3.13.9-slim-trixie AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/costguard
COPY requirements.txt ./
RUN /opt/costguard/bin/pip install --require-hashes -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY agent agent
COPY providers providers
COPY costguard costguard
RUN /opt/costguard/bin/pip install --no-deps .

FROM python:3.13.9-slim-trixie
LABEL org.opencontainers.image.title="costguard" \
      org.opencontainers.image.description="The guard for money spent on cloud GPUs" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 costguard \
    && useradd --system --uid 10001 --gid costguard --home-dir /var/lib/costguard --shell /usr/sbin/nologin costguard \
    && install -d -o costguard -g costguard -m 0700 /var/lib/costguard /var/cache/costguard \
    && install -d -m 0755 /etc/costguard
COPY --from=build /opt/costguard /opt/costguard
# The root file system may be read-only: only the two folders and /tmp are written.
ENV PATH=/opt/costguard/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_DATA_HOME=/var/lib \
    XDG_CACHE_HOME=/var/cache \
    COSTGUARD_CONFIG=/etc/costguard/costguard.toml
USER 10001:10001
WORKDIR /var/lib/costguard
VOLUME ["/var/lib/costguard"]
EXPOSE 8470
# SIGTERM ends it after the run that is under way, at most 60 s later.
STOPSIGNAL SIGTERM
# Healthy while the guard's last recorded run is recent, whatever the door does: it is read from the ledger.
HEALTHCHECK --interval=60s --timeout=15s --start-period=120s --retries=3 CMD ["costguard", "metrics", "--guard-within", "5m"]
ENTRYPOINT ["costguard", "--json-log"]
CMD ["watch"]
