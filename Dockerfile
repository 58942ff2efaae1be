# The service and nothing else: one static binary and the public certificate
# authorities.
#
#   docker build -t fetchd --build-arg VERSION="$(git describe --tags --always)" .
#   docker run --read-only --cap-drop ALL --memory 1g \
#     -e FETCHD_ALLOW_PLAINTEXT=true -p 127.0.0.1:8080:8080 fetchd
#
# deploy/image builds it without a registry and asks what comes out for its health.

# The compiler runs on the builder's own architecture and writes for the target's.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src

# Dependencies first: this layer is built again only when they change.
COPY go.mod go.sum ./
RUN go mod download

COPY . .
ARG VERSION=devel TARGETOS TARGETARCH
# Without cgo the binary needs no libc, and names are looked up by Go's own
# resolver, as the egress guard requires. -trimpath keeps the builder's folders
# out of it; -s -w leaves out debugging tables, stack traces stay readable.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X fetchd/internal/version.version=$VERSION" -o /fetchd ./cmd/fetchd

FROM scratch
# What certificates of origins are checked against.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /fetchd /fetchd
COPY LICENSE /LICENSE
# A number, so that Kubernetes can see that it is not root. It owns nothing here
# and writes nothing: run it with a read-only root.
USER 65532:65532
# Listen beyond the container, on IPv4 and IPv6. As variables, so that flags given
# to `docker run` add to them, and so that the health check finds the same
# addresses. Beyond loopback it wants certificates or FETCHD_ALLOW_PLAINTEXT=true;
# that is the operator's decision. GOMEMLIMIT is not set here: fetchd derives its memory
# limit from the container's (docs/operating.md).
ENV FETCHD_GRPC_ADDR=:8080 FETCHD_HTTP_ADDR=:8081
# gRPC; HTTP and metrics.
EXPOSE 8080 8081
# There is no shell and no curl in here: the binary asks itself.
HEALTHCHECK --interval=10s --timeout=4s --start-period=5s --retries=3 CMD ["/fetchd", "--healthcheck"]
ENTRYPOINT ["/fetchd"]
