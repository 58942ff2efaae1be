# The images contain only one program, as a static binary, and the public certificate
# authorities.
#
#   docker build -t fetchd --build-arg VERSION="$(git describe --tags --match 'v*' --always)" .
#   docker run --read-only --cap-drop ALL --memory 1g \
#     -e FETCHD_ALLOW_PLAINTEXT=true -p 127.0.0.1:8080:8080 fetchd
#
#   docker build -t frontier --target frontier --build-arg VERSION="$(git describe --tags --match 'v*' --always)" .
#   docker run --read-only --cap-drop ALL --memory 1g -v frontier:/data frontier add https://example.org/
#   docker run --read-only --cap-drop ALL --memory 1g -v frontier:/data frontier
#
# deploy/image builds them without a registry and checks them.

# The compiler runs on the builder's architecture and cross-compiles for the target's.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src

# Dependencies first: this layer is rebuilt only when they change.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG VERSION=devel TARGETOS TARGETARCH
# Without cgo the binary needs no libc, and it looks names up with Go's own resolver, as
# the egress guard requires. -trimpath removes the builder's folders; -s -w removes
# debugging tables, but stack traces stay readable.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X fetchd/internal/version.version=$VERSION" -o / ./cmd/fetchd ./cmd/frontier
RUN mkdir /data

FROM scratch AS frontier
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /frontier /frontier
COPY LICENSE /LICENSE
# A volume at /data starts as this folder. The database is there if it is a SQLite file, and so are
# bodies on their way to a bucket.
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
WORKDIR /data
# GOMEMLIMIT is not set here: if the worker contains the service, it derives the limit from the
# container's.
ENV FRONTIER_DB=/data/frontier.db TMPDIR=/data
ENTRYPOINT ["/frontier"]
CMD ["crawl", "--endless", "--quiet"]

# The last image is the one that is built without --target.
FROM scratch AS fetchd
# The authorities that sign certificates of origins.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /fetchd /fetchd
COPY LICENSE /LICENSE
# A number, so that Kubernetes can see that it is not root. It owns and writes no files:
# run it with a read-only root file system.
USER 65532:65532
# Listen outside the container, on IPv4 and IPv6. These are variables, so that flags given
# to `docker run` are added to them, and so that the health check uses the same
# addresses. Outside loopback fetchd needs certificates or FETCHD_ALLOW_PLAINTEXT=true;
# the operator must decide. GOMEMLIMIT is not set here: fetchd derives its memory limit
# from the container's (docs/operating.md).
ENV FETCHD_GRPC_ADDR=:8080 FETCHD_HTTP_ADDR=:8081
# gRPC; HTTP and metrics.
EXPOSE 8080 8081
# The image has no shell and no curl, so the binary checks itself.
HEALTHCHECK --interval=10s --timeout=4s --start-period=5s --retries=3 CMD ["/fetchd", "healthcheck"]
ENTRYPOINT ["/fetchd"]
