# docker build -t adjoint . && docker run --rm -v "$PWD:/data" adjoint train --data book.txt --out runs/book
# The first stage builds the Debian package, for the CPU; the second is a system with that package and nothing else.
FROM debian:bookworm AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends make ca-certificates
WORKDIR /src
COPY scripts/setup.sh scripts/setup.sh
RUN scripts/setup.sh dpkg-dev file nodejs npm
COPY . .
RUN make deb

FROM debian:bookworm-slim
COPY --from=build /src/build/release/packages/adjoint_*.deb /tmp/
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends /tmp/adjoint_*.deb \
 && rm -rf /tmp/*.deb /var/lib/apt/lists/*
WORKDIR /data
ENTRYPOINT ["adjoint"]
CMD ["--help"]
