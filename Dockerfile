# CPU only. docker build -t sce . && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" sce train
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ cmake make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# A portable build: the image may run on another processor than the one that built it.
ENV CMAKE_ARGS="-DGGML_NATIVE=OFF"
RUN python -m venv /venv && /venv/bin/pip install --no-cache-dir -c constraints.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu '.[all]'

FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 sce
COPY --from=build /venv /venv
# Whoever runs it may be somebody without a home.
ENV PATH=/venv/bin:$PATH HOME=/tmp
RUN install -d -o sce /work
USER 1000
WORKDIR /work
ENTRYPOINT ["sce"]
CMD ["--help"]
