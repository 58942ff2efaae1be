# The service and nothing else: one static binary and the public certificate
# authorities.
#
#   docker build -t fetchd --build-arg VERSION="$(git describe --tags --always)" .
#   docker run -p 8080:8080 fetchd

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
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /fetchd ./cmd/fetchd

FROM scratch
# What certificates of origins are checked against.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /fetchd /fetchd
COPY LICENSE /LICENSE
# A number, so that Kubernetes can see that it is not root; it owns nothing here.
USER 65532:65532
# Listen beyond the container. As variables, so that flags given to `docker run`
# add to them, and so that the health check finds the same addresses.
ENV FETCHD_GRPC_ADDR=0.0.0.0:8080
# gRPC.
EXPOSE 8080
# There is no shell and no curl in here: the binary asks itself.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/fetchd", "--healthcheck"]
ENTRYPOINT ["/fetchd"]
